"""Whatever happens to the store, the generation ends with the same tokens.

Every test runs a real daemon process and a real model runner.
"""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvstored_client import Ack, Client, Lease, NewChunk, Placement
from tests.support import labs
from tests.support.daemon import DaemonProcess
from tests.support.scale import Scale, at
from tests.support.waiting import wait_until
from tests.system.conversation import CHUNK_TOKENS, PROMPT_CHUNKS, Laboratory

PROMPT_TOKENS = CHUNK_TOKENS * PROMPT_CHUNKS
HEADER_BYTES = 4096


USES: dict[str, dict[str, Any]] = {
    "layers": {},
    "cake, encoded": {"is_cake": True, "codec": "zstd"},
    "cake": {"is_cake": True},
    "layers, encoded": {"codec": "zstd"},
}


@pytest.fixture(scope="module", params=labs.FAILING_USES.params(USES))
def laboratory(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Laboratory:
    folder = tmp_path_factory.mktemp("laboratory")
    return Laboratory(folder, **USES[request.param])


@pytest.fixture(scope="module")
def expected_ids(laboratory: Laboratory) -> tuple[int, ...]:
    """What is generated without any store."""
    return laboratory.run(None).generated_ids


def interfere_after(
    patch: pytest.MonkeyPatch,
    client: Client,
    verb: str,
    call: int,
    interfere: Callable[[], object],
) -> None:
    """Something happens after a chosen call of a chosen verb of the client."""
    method = getattr(client, verb)
    calls = itertools.count(1)

    def interfered(*arguments: Any, **options: Any) -> Any:
        result = method(*arguments, **options)
        if next(calls) == call:
            interfere()
        return result

    patch.setattr(client, verb, interfered)


def test_stored_history_is_restored(
    laboratory: Laboratory, expected_ids: tuple[int, ...], client: Client
) -> None:
    first = laboratory.run(client)
    assert first.generated_ids == expected_ids
    assert first.restore.restored_tokens == 0
    assert first.save.saved_tokens == PROMPT_CHUNKS * CHUNK_TOKENS
    second = laboratory.run(client)
    assert second.generated_ids == expected_ids
    assert second.restore.restored_tokens == PROMPT_TOKENS
    assert second.restore.dram_bytes > 0


def test_durable_history_survives_sigkill(
    laboratory: Laboratory, expected_ids: tuple[int, ...], daemon: DaemonProcess, client: Client
) -> None:
    laboratory.run(client)
    daemon.restart()
    outcome = laboratory.run(client)
    assert outcome.generated_ids == expected_ids
    assert outcome.restore.restored_tokens == PROMPT_TOKENS
    assert outcome.restore.device_bytes > 0
    assert outcome.restore.dram_bytes == 0


def test_daemon_absent(
    laboratory: Laboratory, expected_ids: tuple[int, ...], tmp_path: Path
) -> None:
    with Client(tmp_path / "nobody.sock") as client:
        outcome = laboratory.run(client)
    assert outcome.generated_ids == expected_ids
    assert outcome.restore.restored_tokens == 0
    assert outcome.save.saved_tokens == 0
    assert outcome.save.dropped_tokens > 0


def test_daemon_killed_in_the_middle_of_a_restore(
    laboratory: Laboratory,
    expected_ids: tuple[int, ...],
    daemon: DaemonProcess,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    laboratory.run(client)
    interfere_after(monkeypatch, client, "read", 3, daemon.kill)
    outcome = laboratory.run(client, span_chunks=4)
    assert outcome.generated_ids == expected_ids
    assert 0 < outcome.restore.restored_tokens < PROMPT_TOKENS


def test_chunk_gone_between_pin_and_read(
    laboratory: Laboratory,
    expected_ids: tuple[int, ...],
    daemon: DaemonProcess,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    laboratory.run(client)
    gone = laboratory.keys(client)[10]
    with Client(daemon.socket_path) as other:
        interfere_after(monkeypatch, client, "pin", 1, lambda: other.delete([gone]))
        outcome = laboratory.run(client)
    assert outcome.generated_ids == expected_ids
    assert outcome.restore.restored_tokens == laboratory.restored_without(10)


def test_flipped_bit_in_the_device_file(
    laboratory: Laboratory, expected_ids: tuple[int, ...], daemon: DaemonProcess, client: Client
) -> None:
    laboratory.run(client)
    damaged = client.admin.inspect(laboratory.keys(client)[5].hex()).chunk
    assert daemon.terminate() == 0
    with daemon.devices[damaged.device_index].open("r+b") as device:
        device.seek(damaged.offset + HEADER_BYTES + 1234)
        byte = device.read(1)[0]
        device.seek(-1, 1)
        device.write(bytes([byte ^ 0x10]))
    daemon.start()
    outcome = laboratory.run(client)
    assert outcome.generated_ids == expected_ids
    restored_tokens = laboratory.restored_without(5)
    assert outcome.restore.restored_tokens == restored_tokens
    wait_until(lambda: client.admin.stats().counters.get("quarantined_chunks") == 1)
    # A second read confirms damage before the chunk goes. Where it was computed sooner, it was
    # saved while it was still there, and while it goes it is refused: the next run saves it.
    saved_tokens = outcome.save.saved_tokens + outcome.save.dropped_tokens
    assert saved_tokens >= PROMPT_TOKENS - restored_tokens
    keys, layout = laboratory.keys(client), laboratory.format.layout
    while client.match(layout, keys).chunk_count < PROMPT_CHUNKS:
        assert laboratory.run(client).generated_ids == expected_ids
    assert laboratory.run(client).restore.restored_tokens == PROMPT_TOKENS


def test_arena_that_is_full(
    laboratory: Laboratory, expected_ids: tuple[int, ...], client: Client
) -> None:
    laboratory.run(client)
    step = 1024 * 1024
    hoard = [client.allocate(step)]
    while hoard[-1] is not None:
        hoard.append(client.allocate(step if len(hoard) < 31 else 4096))
    # Nothing can come: it waits that long, and then computes.
    outcome = laboratory.run(client, timeout_s=1.0)
    assert outcome.generated_ids == expected_ids
    assert outcome.restore.restored_tokens == 0
    assert outcome.save.dropped_tokens > 0


def test_arena_smaller_than_the_history(
    laboratory: Laboratory, expected_ids: tuple[int, ...], daemon: DaemonProcess
) -> None:
    """The history comes in several reads; of what is saved, the arena bounds the rest."""
    with Client(daemon.socket_path, arena_bytes="32MiB") as large:
        laboratory.run(large)
    with Client(daemon.socket_path, arena_bytes=8 * laboratory.chunk_bytes) as small:
        outcome = laboratory.run(small)
    assert outcome.generated_ids == expected_ids
    assert outcome.restore.restored_tokens == PROMPT_TOKENS


@at(Scale.QUICK)
def test_chunks_evicted_between_pin_and_read(
    laboratory: Laboratory,
    expected_ids: tuple[int, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A history that lost its lease is pushed out of DRAM and devices by other chunks."""
    mib = 1024 * 1024
    small = {
        "store": {"device_bytes": 10 * mib, "slab_bytes": 8 * mib},
        "dram": {"capacity_bytes": 8 * mib},
    }
    with (
        DaemonProcess(tmp_path, overrides=small) as daemon,
        Client(daemon.socket_path, arena_bytes="32MiB") as client,
        Client(daemon.socket_path, arena_bytes="4MiB", salt="other", strict=True) as other,
    ):
        assert laboratory.run(client).save.saved_tokens == PROMPT_CHUNKS * CHUNK_TOKENS

        def push_out() -> None:
            layout = laboratory.format.states
            region = other.allocate(laboratory.chunk_bytes)
            assert region is not None
            with region:
                source = Placement.contiguous(region, layout)
                for number in range(2 * 16 * mib // laboratory.chunk_bytes):
                    chunk = NewChunk(key=number.to_bytes(32, "big"), token_count=CHUNK_TOKENS)
                    other.put(layout, [chunk], source, ack=Ack.DURABLE)

        pin = client.pin

        def pin_in_vain(*arguments: Any, **options: Any) -> Lease | None:
            lease = pin(*arguments, **options)
            if lease is not None:
                lease.release()
            push_out()
            return lease

        monkeypatch.setattr(client, "pin", pin_in_vain)
        outcome = laboratory.run(client)
        evicted = client.admin.stats().counters["evicted_chunks"]
    assert evicted > 0
    assert outcome.generated_ids == expected_ids
    assert outcome.restore.restored_tokens < PROMPT_TOKENS
