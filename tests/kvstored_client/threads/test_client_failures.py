"""Every failure is a miss, and an exception only for those who asked for it."""

import logging
import multiprocessing
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from typing import cast

import pytest

from kvstored_client import (
    ArenaFullError,
    Client,
    DaemonAbsentError,
    DaemonFaultError,
    LayoutRefusedError,
    LimitExceededError,
    NewChunk,
    NoRoomError,
    Placement,
    RequestInvalidError,
    SequenceUnknownError,
    SessionRefusedError,
    SliceState,
    StateLayout,
)
from kvstored_client.testing import CallName, Delivery, MemoryDaemon, MemoryStore
from kvstored_client.threads.transport import Signal
from kvstored_client.verbs import store_verbs
from kvstored_contract.reasons import Reason
from tests.kvstored_client.conftest import ARENA_BYTES, PAYLOAD_BYTES
from tests.kvstored_client.gate import Gate
from tests.kvstored_client.threads.test_client import TOKENS, region_of, store

KEYS = [b"k" * 32, b"l" * 32]
NOWHERE = Placement(regions=(), base=0, layer_stride=8192, chunk_stride=3 * 8192)


def chunk(key: bytes = KEYS[0]) -> NewChunk:
    return NewChunk(key=key, token_count=16)


def assert_everything_misses(client: Client, layout: StateLayout) -> None:
    assert not client.available()
    assert client.epoch == 0
    assert client.allocate(4096) is None
    report = client.put(layout, [chunk(), chunk(KEYS[1])], NOWHERE)
    assert report.rejected_count == 2
    match = client.match(layout, KEYS, lease_ms=1)
    assert (match.chunk_count, match.lease) == (0, None)
    with client.read(layout, KEYS, NOWHERE) as read:
        assert not read.wait_for(0)
        assert not read.wait_layer(2)
        assert read.state(1, 2) is SliceState.MISSING
        assert read.wait().resident == (False, False)
        read.advance(1)
    assert client.pin(layout, KEYS, lease_ms=1) is None
    assert client.delete(KEYS) == 0
    assert client.sequences.create("a", layout) is None
    assert client.sequences.get("a") is None
    assert client.sequences.list() == []
    assert not client.sequences.delete("a")
    with pytest.raises(DaemonAbsentError):
        client.admin.stats()


def test_without_a_daemon_everything_is_a_miss(tmp_path: Path, layout: StateLayout) -> None:
    with Client(tmp_path / "none.sock", reconnect_interval_s=60) as client:
        assert client.prefix_keys(layout, TOKENS) == []
        assert client.namespace == ""
        assert_everything_misses(client, layout)
        assert client.counters["connect_failures"] == 1
        assert client.counters["put_failed_DaemonAbsent"] == 1


def test_a_strict_client_raises_without_a_daemon(tmp_path: Path, layout: StateLayout) -> None:
    with Client(tmp_path / "none.sock", strict=True) as client:
        assert not client.available()
        for call in (
            lambda: client.put(layout, [chunk()], NOWHERE),
            lambda: client.prefix_keys(layout, TOKENS),
            lambda: client.match(layout, KEYS),
            lambda: client.read(layout, KEYS, NOWHERE),
            lambda: client.allocate(1),
            lambda: client.delete(KEYS),
            lambda: client.sequences.get("a"),
        ):
            with pytest.raises(DaemonAbsentError):
                call()


def test_a_failure_is_logged_once_per_kind(
    tmp_path: Path, layout: StateLayout, caplog: pytest.LogCaptureFixture
) -> None:
    with Client(tmp_path / "none.sock") as client, caplog.at_level(logging.WARNING):
        client.match(layout, KEYS)
        client.match(layout, KEYS)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "match failed and counts as a miss: no daemon at" in caplog.text
    assert client.counters["match_failed"] == 2


def test_a_refused_session_is_a_miss(daemon: MemoryDaemon, layout: StateLayout) -> None:
    daemon.store.faults.session_refusal = "the arenas of all sessions would exceed arenas_bytes_max"
    with Client(daemon.socket_path, arena_bytes=4096) as client:
        assert client.match(layout, KEYS).chunk_count == 0
        assert client.counters["match_failed_SessionRefused"] == 1
    with (
        Client(daemon.socket_path, arena_bytes=4096, strict=True) as client,
        pytest.raises(SessionRefusedError, match="arenas_bytes_max"),
    ):
        client.match(layout, KEYS)


def test_available_swallows_why_a_session_is_refused(
    daemon: MemoryDaemon, layout: StateLayout, caplog: pytest.LogCaptureFixture
) -> None:
    """Bug: the sentence never reached the log; later calls blamed an absent daemon."""
    sentence = "all arenas together would exceed server.arenas_bytes_max"
    daemon.store.faults.session_refusal = sentence
    with Client(daemon.socket_path, arena_bytes=4096) as client, caplog.at_level(logging.WARNING):
        assert client.refusal == ""
        assert not client.available()
        assert client.allocate(4096, connects=False) is None
        assert client.match(layout, KEYS).chunk_count == 0
        assert client.refusal == sentence
        assert client.counters["match_failed_SessionRefused"] == 1
        assert client.counters["connect_refused_LIMIT_EXCEEDED"] == 1
    assert [record.getMessage() for record in caplog.records] == [
        f"the daemon refuses a session, so every call is a miss: {sentence}"
    ]


def test_who_wants_to_know_of_refusals_is_told_instead_of_the_log(
    daemon: MemoryDaemon, caplog: pytest.LogCaptureFixture
) -> None:
    daemon.store.faults.session_refusal = "no"
    told: list[SessionRefusedError] = []
    with (
        Client(daemon.socket_path, arena_bytes=4096, on_refusal=told.append) as client,
        caplog.at_level(logging.WARNING),
    ):
        assert not client.available()
    assert [str(refusal) for refusal in told] == ["no"]
    assert caplog.text == ""


def test_a_full_arena(strict_client: Client, client: Client, layout: StateLayout) -> None:
    with pytest.raises(ArenaFullError, match="release regions, or ask for a larger arena"):
        strict_client.allocate(1 << 21)
    with pytest.raises(RequestInvalidError, match="at least 1 byte"):
        strict_client.allocate(0)
    assert client.allocate(1 << 21) is None
    assert client.counters["allocate_failed_ArenaFull"] == 1
    assert client.allocate(PAYLOAD_BYTES) is not None
    boards = (ARENA_BYTES - PAYLOAD_BYTES) // 4096
    reads = [client.read(layout, KEYS, NOWHERE) for _ in range(boards + 1)]
    assert reads[-1].wait().resident == (False, False)
    assert client.counters["read_failed_ArenaFull"] == 1
    for read in reads:
        read.close()


@pytest.mark.parametrize(
    ("call_name", "reason", "kind"),
    [
        (CallName.REGISTER, Reason.LAYOUT_INVALID, LayoutRefusedError),
        (CallName.PUT, Reason.DRAM_FULL, NoRoomError),
        (CallName.PUT, Reason.LIMIT_EXCEEDED, LimitExceededError),
        (CallName.PUT, Reason.DRAINING, DaemonAbsentError),
        (CallName.PUT, Reason.INTERNAL, DaemonFaultError),
    ],
)
def test_a_refused_put(
    strict_client: Client,
    client: Client,
    memory: MemoryStore,
    layout: StateLayout,
    call_name: CallName,
    reason: Reason,
    kind: type[Exception],
) -> None:
    memory.faults.refusals[call_name] = reason
    with pytest.raises(kind, match=f"refuses it: {reason.name}"):
        strict_client.put(layout, [chunk()], NOWHERE)
    report = client.put(layout, [chunk()], NOWHERE)
    assert report.results[0].reason is reason
    # The daemon answered, so that nothing is uncertain and the session goes on.
    assert client.epoch == 1


def test_a_refused_read_frees_its_board(
    client: Client, memory: MemoryStore, layout: StateLayout
) -> None:
    memory.faults.refusals[CallName.READ] = Reason.ARENA_RANGE
    region = client.allocate(PAYLOAD_BYTES)
    assert region is not None
    for _ in range(20):
        with client.read(layout, KEYS, NOWHERE) as read:
            assert read.wait().finished
    assert client.counters["read_failed_RequestInvalid"] == 20
    assert region.is_current


@pytest.mark.parametrize("verb", ["put", "read"])
def test_an_uncertain_end_of_a_call_that_uses_the_arena_ends_the_session(
    client: Client, memory: MemoryStore, layout: StateLayout, verb: str
) -> None:
    memory.faults.silent = {CallName.PUT, CallName.READ}
    region = client.allocate(4096)
    assert region is not None
    if verb == "put":
        assert client.put(layout, [chunk()], NOWHERE).rejected_count == 1
    else:
        client.read(layout, KEYS, NOWHERE).close()
    assert not region.is_current
    region.release()
    again = client.allocate(4096)
    assert again is not None
    assert again.is_current
    assert client.counters["connects"] == 2


def test_an_interrupted_close_left_a_read_the_memory_of_the_next_one(
    client: Client, memory: MemoryStore, layout: StateLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: the daemon wrote on while the engine used the region for something else."""

    def interrupted(*_: object) -> bool:
        raise KeyboardInterrupt

    memory.faults.reads_hang = True
    region = client.allocate(Placement.contiguous_bytes(layout, len(KEYS)))
    assert region is not None
    read = client.read(layout, KEYS, Placement.contiguous(region, layout))
    monkeypatch.setattr(Signal, "wait", interrupted)
    memory.faults.keeps_cancelled = True
    with pytest.raises(KeyboardInterrupt):
        read.close()
    assert client.epoch == 0
    assert not region.is_current
    assert read.finished


def test_an_uncertain_match_leaves_the_session_alone(
    client: Client, memory: MemoryStore, layout: StateLayout
) -> None:
    memory.faults.silent = {CallName.MATCH}
    assert client.match(layout, KEYS).chunk_count == 0
    assert client.counters["connects"] == 1
    assert client.epoch == 1


def test_a_token_that_the_daemon_forgot_ends_the_session(
    client: Client, memory: MemoryStore, layout: StateLayout
) -> None:
    assert client.available()
    _, forgotten = memory.sessions.popitem()
    assert client.match(layout, KEYS).chunk_count == 0
    assert client.epoch == 0
    assert client.available()
    forgotten.end()


@pytest.mark.parametrize(
    "call",
    [
        lambda client, layout: client.put(
            layout, [NewChunk(key=cast("bytes", "t" * 32), token_count=1)], NOWHERE
        ),
        lambda client, layout: client.put(
            layout, [chunk()], Placement(regions=(), base=2**64, layer_stride=0)
        ),
        lambda client, layout: client.match(layout, KEYS, lease_ms=-1),
        lambda client, layout: client.read(layout, KEYS, NOWHERE, window_bytes=-1),
        lambda client, layout: client.read(layout, KEYS, NOWHERE, first_layer=4),
        lambda client, layout: client.read(layout, KEYS, NOWHERE, layer_count=-1),
        lambda client, layout: client.delete(["text"]),
        lambda client, layout: client.sequences.truncate_back("a", -1),
        lambda client, layout: client.prefix_keys(layout, [-1] * 16),
    ],
)
def test_a_malformed_argument_is_an_invalid_request(
    strict_client: Client, client: Client, layout: StateLayout, call: object
) -> None:
    assert callable(call)
    assert strict_client.available()
    with pytest.raises(RequestInvalidError):
        call(strict_client, layout)
    call(client, layout)
    assert any(name.endswith("_failed_RequestInvalid") for name in client.counters)


def test_death_of_the_daemon_in_the_middle_of_a_read(tmp_path: Path, layout: StateLayout) -> None:
    memory = MemoryStore()
    daemon = MemoryDaemon(memory, tmp_path)
    client = Client(daemon.socket_path, arena_bytes=1 << 20, reconnect_interval_s=0)
    keys, region = store(client, layout, TOKENS)
    memory.faults.delivery = Delivery.HELD
    read = client.read(layout, keys, Placement.contiguous(region, layout))
    for layer in range(3):
        memory.reads[0].deliver(0, layer)
    results: list[bool] = []
    waiters = [
        threading.Thread(target=lambda: results.append(read.wait_for(1))),
        threading.Thread(target=lambda: results.append(read.wait().finished)),
        threading.Thread(target=lambda: results.append(read.wait_layer(2))),
    ]
    for waiter in waiters:
        waiter.start()
    daemon.stop()
    for waiter in waiters:
        waiter.join(30)
        assert not waiter.is_alive()
    assert sorted(results) == [False, False, True]
    assert read.report().resident == (True, False)
    assert read.state(1, 1) is SliceState.MISSING
    assert not region.is_current
    read.close()
    assert_everything_misses(client, layout)
    assert len(client.prefix_keys(layout, TOKENS)) == 2

    memory.faults.delivery = Delivery.AT_ONCE
    restarted = MemoryDaemon(memory, tmp_path)
    assert client.available()
    assert client.epoch == 2
    assert client.match(layout, keys).chunk_count == 2
    with region_of(client, layout, 2) as target:
        placement = Placement.contiguous(target, layout)
        with client.read(layout, keys, placement) as again:
            assert again.wait().resident_prefix == 2
    region.release()
    client.close()
    restarted.stop()


def test_death_of_the_daemon_in_the_middle_of_a_put(tmp_path: Path, layout: StateLayout) -> None:
    memory = MemoryStore()
    with (
        MemoryDaemon(memory, tmp_path) as daemon,
        Client(daemon.socket_path, arena_bytes=1 << 20, reconnect_interval_s=0) as client,
    ):
        client.match(layout, KEYS)
        gate = Gate(memory)
        reports = []
        thread = threading.Thread(
            target=lambda: reports.append(client.put(layout, [chunk()], NOWHERE))
        )
        thread.start()
        assert gate.entered.acquire(timeout=30)
        link = client._connection.current()
        assert link is not None
        link.transport.close()
        thread.join(30)
        assert reports[0].rejected_count == 1
        assert client._connection.current() is None
        gate.open()


def test_a_call_on_a_closed_channel_finds_no_daemon(client: Client, layout: StateLayout) -> None:
    assert client.available()
    link = client._connection.current()
    assert link is not None
    client.close()
    flow = store_verbs.match(layout, KEYS, lease_ms=0).flow(link.session)
    with pytest.raises(DaemonAbsentError, match="the session has ended"):
        link.transport.drive(flow)


def test_a_late_lookup_of_a_strict_client_raises_what_it_is(
    strict_client: Client, layout: StateLayout
) -> None:
    assert strict_client.sequences.get("a") is None
    with pytest.raises(SequenceUnknownError):
        strict_client.sequences.truncate_front("a", 1)


def test_a_forked_child_finds_the_client_closed(
    client: Client, memory: MemoryStore, layout: StateLayout
) -> None:
    keys, region = store(client, layout, TOKENS)
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()

    def child(pipe: Connection) -> None:
        pipe.send((client.match(layout, keys).chunk_count, client.epoch, region.is_current))

    process = context.Process(target=child, args=(there,))
    process.start()
    assert here.poll(30)
    assert here.recv() == (0, 0, False)
    process.join(30)
    assert process.exitcode == 0
    assert client.match(layout, keys).chunk_count == 2
