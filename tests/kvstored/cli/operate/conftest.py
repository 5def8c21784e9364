"""A daemon with two namespaces of quotas, and verbs called in this process."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kvstored.cli.main import main
from kvstored_client import (
    Ack,
    Client,
    LayerState,
    NewChunk,
    Placement,
    StateKind,
    StateLayout,
)
from tests.support.daemon import MIB, DaemonProcess

LAYOUT = StateLayout(
    model="operate", dtype="float32", layers=(LayerState(StateKind.KV, 1024),) * 2, chunk_tokens=16
)
CHUNK_BYTES = 2 * 16 * 1024


@pytest.fixture(scope="package")
def operated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """It listens for monitoring beside its session socket."""
    overrides = {
        "quotas": {"namespaces": [{"namespace": "default", "dram_limit_bytes": 48 * MIB}]},
    }
    process = DaemonProcess(tmp_path_factory.mktemp("operated"), overrides=overrides)
    process.configure({**overrides, "metrics": {"listen": str(metrics_socket(process))}})
    with process:
        yield process


def metrics_socket(process: DaemonProcess) -> Path:
    """Where it answers monitoring."""
    return process.socket_path.parent / "metrics.sock"


Verb = Callable[..., tuple[int, Any]]


@pytest.fixture
def verb(operated: DaemonProcess, capsys: pytest.CaptureFixture[str]) -> Verb:
    """Calls a verb with ``--json``: its status, and what it printed, or its sentence."""

    def call(*arguments: str) -> tuple[int, Any]:
        name, *rest = arguments
        status = main([name, "--config", str(operated.config_path), *rest, "--json"])
        captured = capsys.readouterr()
        return status, json.loads(captured.out) if captured.out else captured.err

    return call


def key(name: str, number: int) -> bytes:
    return f"{name}-{number}".encode().ljust(32, b".")


def store_sequence(client: Client, name: str, chunk_count: int) -> list[bytes]:
    """A durable sequence with bytes of its own; returns its keys."""
    keys = [key(name, number) for number in range(chunk_count)]
    with client.allocate(Placement.contiguous_bytes(LAYOUT, chunk_count)) as region:  # type: ignore[union-attr]  # a strict client raises
        values = torch.arange(chunk_count * CHUNK_BYTES // 4, dtype=torch.float32)
        region.tensor(torch.float32, (values.numel(),)).copy_(values + sum(name.encode()))
        report = client.put(
            LAYOUT,
            [
                NewChunk(key=one, token_count=16, parent_key=keys[index - 1] if index else b"")
                for index, one in enumerate(keys)
            ],
            Placement.contiguous(region, LAYOUT),
            ack=Ack.DURABLE,
        )
    assert report.stored_count == chunk_count
    client.sequences.create(name, LAYOUT, keys=keys)
    return keys
