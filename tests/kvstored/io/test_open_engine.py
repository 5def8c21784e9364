"""The choice of the I/O engine."""

import errno
import logging
from pathlib import Path

import pytest

from kvstored.io import open_engine as module
from kvstored.io import ring
from kvstored.io.device import Device
from kvstored.io.file_device import FileDevice
from kvstored.io.memory_device import MemoryDevice
from kvstored.io.open_engine import EngineKind, EngineUnavailableError, open_engine
from kvstored.io.ring_engine import RingEngine
from kvstored.io.thread_engine import ThreadEngine

PAGE_BYTES = 4096


@pytest.fixture
def file(tmp_path: Path) -> FileDevice:
    path = tmp_path / "device"
    path.write_bytes(bytes(PAGE_BYTES))
    return FileDevice.open(path)


@pytest.mark.parametrize(
    ("kind", "engine_type"),
    [
        (EngineKind.AUTO, RingEngine),
        (EngineKind.IO_URING, RingEngine),
        (EngineKind.THREADS, ThreadEngine),
    ],
)
def test_files_are_served_as_asked(file: FileDevice, kind: EngineKind, engine_type: type) -> None:
    engine = open_engine([file], kind=kind, depth=1)
    assert type(engine) is engine_type
    engine.close()
    file.close()


@pytest.mark.parametrize("is_refused_by", ["device", "system", "filter"])
def test_where_io_uring_is_not_there_threads_serve_unless_it_was_named(
    file: FileDevice,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    is_refused_by: str,
) -> None:
    def forbidden(*_: object, **__: object) -> RingEngine:
        raise OSError(errno.EPERM, "Operation not permitted")

    devices: list[Device] = [file]
    reason = "the system refuses it (Operation not permitted)"
    if is_refused_by == "device":
        devices.append(MemoryDevice("memory", PAGE_BYTES))
        reason = "memory can only be served by threads"
    elif is_refused_by == "system":
        monkeypatch.setattr(module, "RingEngine", forbidden)
    else:
        # A ring can be made and not be used.
        monkeypatch.setattr(ring.Ring, "submit", forbidden)
    with caplog.at_level(logging.INFO):
        engine = open_engine(devices, kind=EngineKind.AUTO, depth=1)
    assert type(engine) is ThreadEngine
    assert reason in caplog.text
    engine.close()
    with pytest.raises(EngineUnavailableError) as caught:
        open_engine(devices, kind=EngineKind.IO_URING, depth=1)
    assert reason in str(caught.value)
    assert "set io.engine to auto" in str(caught.value)
    file.close()
