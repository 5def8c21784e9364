import socket
from pathlib import Path

import pytest

from engine_adapters.vllm.testing import ports
from engine_adapters.vllm.testing.errors import EngineError
from engine_adapters.vllm.testing.ports import free_port


def set_system_range(path: Path, monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    path.write_text(f"{first}\t60999\n")
    monkeypatch.setattr(ports, "SYSTEM_RANGE", path)


def test_a_port_could_be_taken_by_a_connection_before_the_server_listened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: it was one of those that the system gives to connections."""
    set_system_range(tmp_path / "range", monkeypatch, 32_768)
    found = [free_port() for _ in range(20)]
    assert max(found) < 32_768
    assert len(set(found)) > 1


def test_where_the_system_gives_nearly_all_ports_there_was_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_system_range(tmp_path / "range", monkeypatch, 1024)
    assert free_port() >= 1024


def test_ports_that_are_all_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", free_port())) as taken:
        port = taken.getsockname()[1]
        set_system_range(tmp_path / "range", monkeypatch, port + 1)
        monkeypatch.setattr(ports, "FIRST_PORT", port)
        with pytest.raises(EngineError, match=f"from {port} to {port + 1}"):
            free_port()
