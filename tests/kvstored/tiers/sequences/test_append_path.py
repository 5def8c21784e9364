"""Appends over a whole store in this process: what is kept, dropped, written and given back.

Fails when a record names a key before its chunk and all before it are durable (seen: keys where
none may be), and when the recorder waits for a sequence that is in use (seen: it hangs).
"""

import threading
from collections.abc import Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from kvstored.format.identity import ChunkId
from kvstored.io.device import DeviceError
from kvstored.store.sequences.rules import SequenceConflictError
from kvstored.store.sequences.sequence_table import SequenceStorageError
from kvstored.tiers.chunks.open_frames import OPEN_SHARE_MAX
from kvstored.tiers.chunks.requests import AppendOutcome
from kvstored.tiers.sequences.open_sequence import OpenSequence, SequenceId
from kvstored.tiers.sequences.sequences import Caller
from kvstored_contract.layout import StateLayout
from kvstored_contract.reasons import Reason
from tests.support.appends import (
    BIG,
    ME,
    OTHER,
    ROWS,
    TOKENS,
    append,
    check_bytes,
    create,
    durable,
    flush,
    open_bytes,
)
from tests.support.devices import FailingDevice, GatedDevice, Wrapping
from tests.support.rows import MIXED, Rows
from tests.support.stores import (
    MIB,
    NAMESPACE,
    StoreUnderTest,
    open_store,
)
from tests.support.waiting import PATIENCE_S, wait_until


@pytest.mark.parametrize("is_ephemeral", [False, True])
def test_steps_become_chunks(opened_rows: StoreUnderTest, is_ephemeral: bool) -> None:
    create(opened_rows, "a", "b", is_ephemeral=is_ephemeral)
    assert append(opened_rows, {"a": range(5), "b": range(40)}) == [
        AppendOutcome(5),
        AppendOutcome(40),
    ]
    for position in range(5, 38):
        assert append(opened_rows, {"a": range(position, position + 1)}) == [
            AppendOutcome(position + 1)
        ]
    check_bytes(opened_rows, 40)
    assert durable(opened_rows, "a", 2).durable_tokens == 32
    assert opened_rows.store.sequences.get(ME, "a").length_tokens == 38
    for chunk_key in ROWS.keys(TOKENS[:40]):
        opened_rows.store._dram.drop(ChunkId(NAMESPACE, chunk_key))
    check_bytes(opened_rows, 40)
    # Both sequences have the same tokens: each chunk was stored once.
    assert opened_rows.stats().chunk_count == 2
    assert opened_rows.stats().counters["append_stored_chunks"] == 2
    assert opened_rows.stats().counters["append_existed_chunks"] == 2


def test_a_chunk_is_readable_before_it_is_durable_and_named_only_then(tmp_path: Path) -> None:
    devices = Wrapping(GatedDevice)
    with open_store(tmp_path, dram_bytes=4 * MIB, wrap=devices) as opened_rows:
        create(opened_rows, "a")
        append(opened_rows, {"a": range(33)})
        check_bytes(opened_rows, 33)
        state = opened_rows.store.sequences.get(ME, "a")
        assert (state.length_tokens, state.durable_tokens) == (33, 0)
        for device in devices:
            device.gate.set()
        durable(opened_rows, "a", 2)


def test_keys_wait_for_those_before_them(tmp_path: Path) -> None:
    devices = Wrapping(GatedDevice)
    with open_store(tmp_path, dram_bytes=4 * MIB, wrap=devices) as opened_rows:
        create(opened_rows, "a")
        append(opened_rows, {"a": range(32)})
        stripe = int.from_bytes(ROWS.keys(TOKENS[:16])[0][:4], "little")
        devices[(stripe + 1) % 2].gate.set()
        second = ChunkId(NAMESPACE, ROWS.keys(TOKENS[:32])[1])
        wait_until(lambda: opened_rows.store._store.find([second]) != [None])
        append(opened_rows, {"a": range(32, 33)})
        assert opened_rows.store.sequences.get(ME, "a").record().keys == ()
        devices[stripe % 2].gate.set()
        assert durable(opened_rows, "a", 2).durable_tokens == 32


def test_a_sequence_begins_behind_stored_chunks(opened_rows: StoreUnderTest) -> None:
    create(opened_rows, "a")
    append(opened_rows, {"a": range(40)})
    keys = ROWS.keys(TOKENS[:32])
    opened_rows.store.sequences.create(ME, "b", MIXED, keys=keys, is_ephemeral=True)
    assert append(opened_rows, {"b": range(32, 50)}) == [AppendOutcome(50)]
    check_bytes(opened_rows, 50)


def test_what_does_not_fit_is_refused_and_changes_nothing(opened_rows: StoreUnderTest) -> None:
    create(opened_rows, "a", "b")
    append(opened_rows, {"a": range(5)})
    other = Rows(StateLayout(model="x", dtype="f", layers=MIXED.layers, chunk_tokens=16))
    opened_rows.store.layouts.register(other.layout)
    assert append(opened_rows, {"a": range(6, 7), "c": range(1), "b": range(3)}) == [
        AppendOutcome(5, Reason.SEQUENCE_CONFLICT),
        AppendOutcome(0, Reason.SEQUENCE_UNKNOWN),
        AppendOutcome(3),
    ]
    assert append(opened_rows, {"a": range(5, 6)}, rows=other) == [
        AppendOutcome(5, Reason.SEQUENCE_CONFLICT)
    ]
    assert append(opened_rows, {"a": range(5, 16)}) == [AppendOutcome(16)]
    check_bytes(opened_rows, 16)


def test_an_item_does_not_wait_for_the_sequence_of_another(opened_rows: StoreUnderTest) -> None:
    """Bug: one that somebody else was changing used up the time for room of all items."""
    create(opened_rows, "a", "b")
    store = opened_rows.store
    sequences = store.open_sequences
    outcomes: list[AppendOutcome] = []
    step = threading.Thread(
        target=lambda: outcomes.extend(append(opened_rows, {"b": range(3), "a": range(20)}))
    )
    with sequences.held_one(sequences.resolve(NAMESPACE, ME.session_id, "b")):
        step.start()
        wait_until(lambda: store.sequences.get(ME, "a").length_tokens == 20)
        assert not outcomes
    step.join(PATIENCE_S)
    assert outcomes == [AppendOutcome(3), AppendOutcome(20)]


def test_items_whose_sequences_are_held_were_waited_for_one_after_the_other(
    opened_rows: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: some hundred of them used up the time for reading the tail of another item."""
    create(opened_rows, "a", "b")
    sequences = opened_rows.store.open_sequences
    hold, deadlines = sequences.held_if_free, []

    def noted(identities: Iterable[SequenceId], deadline: float = 0.0) -> Any:
        deadlines.append(deadline)
        return hold(identities, deadline)

    monkeypatch.setattr(sequences, "held_if_free", noted)
    step = threading.Thread(target=append, args=(opened_rows, {"a": range(3), "b": range(3)}))
    with (
        sequences.held_one(sequences.resolve(NAMESPACE, ME.session_id, "a")),
        sequences.held_one(sequences.resolve(NAMESPACE, ME.session_id, "b")),
    ):
        step.start()
        wait_until(lambda: len(deadlines) >= 3)
    step.join(PATIENCE_S)
    assert deadlines[0] == 0
    assert deadlines[1] == deadlines[2] > 0


def test_a_full_dram_drops_the_rows_of_whole_items_and_stops_the_sequence(
    opened_rows: StoreUnderTest,
) -> None:
    rows = Rows(BIG)
    store = opened_rows.store
    for name in "abc":
        store.sequences.create(ME, name, BIG)
    # Half of four slabs are for open frames.
    assert OPEN_SHARE_MAX == 0.5
    assert append(opened_rows, {"a": range(1), "b": range(9), "c": range(2)}, rows=rows) == [
        AppendOutcome(1),
        AppendOutcome(0, Reason.DRAM_FULL),
        AppendOutcome(2),
    ]
    assert store.sequences.get(ME, "b").is_stopped
    assert not store.sequences.get(ME, "a").is_stopped
    assert append(opened_rows, {"b": range(9, 10)}, rows=rows) == [
        AppendOutcome(0, Reason.SEQUENCE_CONFLICT)
    ]
    store.sequences.delete(ME, "a")
    assert append(opened_rows, {"b": range(1)}, rows=rows) == [AppendOutcome(1)]
    assert not store.sequences.get(ME, "b").is_stopped
    store.sequences.delete(ME, "b")
    store.sequences.delete(ME, "c")
    assert open_bytes(opened_rows) == 0
    assert store.inspection.stats().counters["append_dropped_rows"] == 10


def test_a_chunk_that_cannot_be_written_ends_its_sequence(tmp_path: Path) -> None:
    devices = Wrapping(FailingDevice)
    with open_store(tmp_path, dram_bytes=4 * MIB, wrap=devices) as opened_rows:
        create(opened_rows, "a")
        append(opened_rows, {"a": range(20)})
        flush(opened_rows, "a", 20)
        for device in devices:
            device.broken.add("write")
        append(opened_rows, {"a": range(20, 50)})
        # Its chunks lie on two devices, and either may be heard of first.
        opened = opened_rows.store.open_sequences
        with opened.held_one(opened.resolve(NAMESPACE, ME.session_id, "a")) as sequence:
            pending = sequence.pending
        wait_until(lambda: not pending)
        # What was flushed of the chunk is left of it.
        state = opened_rows.store.sequences.get(ME, "a")
        assert (state.length_tokens, state.durable_tokens, state.is_stopped) == (20, 20, True)
        assert open_bytes(opened_rows) == 0
        assert append(opened_rows, {"a": range(50, 51)}) == [
            AppendOutcome(20, Reason.SEQUENCE_CONFLICT)
        ]
        for device in devices:
            device.broken.clear()
        assert append(opened_rows, {"a": range(20, 33)}) == [AppendOutcome(33)]
        durable(opened_rows, "a", 2)
        check_bytes(opened_rows, 33)


def test_a_store_without_room_ends_the_sequence_at_that_chunk(tmp_path: Path) -> None:
    with open_store(tmp_path, dram_bytes=4 * MIB, device_count=1) as opened_rows:
        create(opened_rows, "a", is_ephemeral=True)
        error = DeviceError("device0", "write", "gone", sticky=True)
        opened_rows.store._store.failures.report(0, error)
        assert append(opened_rows, {"a": range(40)}) == [AppendOutcome(0, Reason.STORE_FULL)]
        assert open_bytes(opened_rows) == 0
        assert opened_rows.stats().dram_used_bytes == 0


def test_a_fault_while_a_chunk_is_sealed_gives_everything_back(
    opened_rows: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(opened_rows, "a")

    def broken(*_: object) -> None:
        raise RuntimeError("broken")

    with monkeypatch.context() as patch:
        patch.setattr(opened_rows.store._store, "find", broken)
        assert append(opened_rows, {"a": range(20)}) == [AppendOutcome(0, Reason.INTERNAL)]
    assert opened_rows.stats().dram_used_bytes == 0
    with monkeypatch.context() as patch:
        patch.setattr("kvstored.tiers.sequences.append_path.copy_rows", broken)
        with pytest.raises(TypeError):
            append(opened_rows, {"a": range(20)})
    assert opened_rows.stats().dram_used_bytes == 0
    assert append(opened_rows, {"a": range(20)}) == [AppendOutcome(20)]


def test_a_fault_between_two_chunks_gives_back_the_frames_of_all_items(
    opened_rows: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: they counted as open for ever, and chunks that nobody wrote were recorded."""
    create(opened_rows, "a", "b", "c")
    append(opened_rows, {"c": range(3)})
    kept_bytes, path = open_bytes(opened_rows), opened_rows.store.append_path
    watch = path._recorder.watch
    watched: list[bytes] = []

    def broken(sequence: OpenSequence, chunk_key: bytes, outcome: "Future[Reason]") -> None:
        if len(watched) == 2:
            raise RuntimeError("broken")
        watched.append(chunk_key)
        watch(sequence, chunk_key, outcome)

    with monkeypatch.context() as patch:
        patch.setattr(path._recorder, "watch", broken)
        with pytest.raises(RuntimeError, match="broken"):
            append(opened_rows, {"a": range(20), "b": range(50), "c": range(3, 20)})
    sequences = opened_rows.store.sequences
    assert [sequences.get(ME, name).length_tokens for name in "abc"] == [20, 16, 3]
    assert durable(opened_rows, "a", 1).length_tokens == 20
    assert durable(opened_rows, "b", 1).is_stopped
    assert open_bytes(opened_rows) == 2 * kept_bytes
    assert append(opened_rows, {"b": range(16, 50)}) == [AppendOutcome(50)]
    check_bytes(opened_rows, 50)
    opened_rows.store.open_sequences.end_session(1)
    assert open_bytes(opened_rows) == 0


def test_many_append_to_one_sequence_and_one_wins_each_position(
    opened_rows: StoreUnderTest,
) -> None:
    create(opened_rows, "a")
    taken: list[int] = []

    def run(caller: Caller) -> None:
        arena = StoreUnderTest(
            store=opened_rows.store, devices=(), arena=memoryview(bytearray(MIB))
        )
        for position in range(48):
            outcome = append(arena, {"a": range(position, position + 1)}, caller=caller)[0]
            if outcome.reason is Reason.UNSPECIFIED:
                taken.append(position)

    threads = [threading.Thread(target=run, args=(caller,)) for caller in (ME, OTHER)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    length = opened_rows.store.sequences.get(ME, "a").length_tokens
    assert sorted(taken) == list(range(length))
    assert length >= 1
    check_bytes(opened_rows, length)


def test_rows_of_two_clients_shared_a_chunk(opened_rows: StoreUnderTest) -> None:
    """Bug: as many of another client's rows passed for ours, and were sealed under our key.

    Nobody but who has appended them knows of which tokens they are, so nobody else adds to them or
    flushes them before they are flushed.
    """
    create(opened_rows, "a")
    theirs = [token + 1 for token in TOKENS]
    assert append(opened_rows, {"a": range(5)}, caller=OTHER, tokens=theirs) == [AppendOutcome(5)]
    assert append(opened_rows, {"a": range(5, 20)}) == [AppendOutcome(5, Reason.SEQUENCE_CONFLICT)]
    with pytest.raises(SequenceConflictError, match="another client has added"):
        flush(opened_rows, "a", 5)
    assert opened_rows.stats().chunk_count == 0
    key = ROWS.tail_key(theirs[:5])
    opened_rows.store.sequences.flush(OTHER, "a", key, 5)
    assert append(opened_rows, {"a": range(5, 20)}, tokens=[*theirs[:5], *TOKENS[5:]]) == [
        AppendOutcome(20)
    ]


def test_a_flush_that_waits_for_a_device_holds_nobody_else_up(tmp_path: Path) -> None:
    """Fails (hangs) when the recorder waits for a sequence that is in use."""
    devices = Wrapping(GatedDevice)
    with open_store(tmp_path, dram_bytes=4 * MIB, wrap=devices) as opened_rows:
        create(opened_rows, "slow", "quick")
        stripe = int.from_bytes(ROWS.keys(TOKENS[:16])[0][:4], "little")
        append(opened_rows, {"slow": range(32), "quick": range(17)})
        flusher = threading.Thread(target=flush, args=(opened_rows, "slow", 32))
        flusher.start()
        slow = opened_rows.store.sequences._resolve(ME, "slow")
        lock = opened_rows.store.open_sequences._sequences[slow].lock
        wait_until(lock.locked)
        # The first chunk of both is heard of for the one in use as well.
        devices[stripe % 2].gate.set()
        assert durable(opened_rows, "quick", 1).durable_tokens == 16
        assert flusher.is_alive()
        devices[(stripe + 1) % 2].gate.set()
        flusher.join()
        assert opened_rows.store.sequences.get(ME, "slow").durable_tokens == 32


def test_a_record_that_could_not_be_stored_is_made_up_for_later(
    opened_rows: StoreUnderTest, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    create(opened_rows, "a")

    def refuse(_: object) -> None:
        raise SequenceStorageError(Reason.STORE_FULL)

    with monkeypatch.context() as patch:
        patch.setattr(opened_rows.store.open_sequences.table, "store", refuse)
        append(opened_rows, {"a": range(17)})
        wait_until(lambda: "not up to date" in caplog.text)
        state = opened_rows.store.sequences.get(ME, "a")
        assert (state.length_tokens, state.durable_tokens) == (17, 0)
        with pytest.raises(SequenceStorageError, match="STORE_FULL"):
            flush(opened_rows, "a", 17)
    append(opened_rows, {"a": range(17, 33)})
    assert durable(opened_rows, "a", 2).durable_tokens == 32


def test_an_ephemeral_sequence_does_not_wait_for_the_records_of_others(
    opened_rows: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: what the index refused kept those back that are never in it."""
    create(opened_rows, "named")
    create(opened_rows, "ephemeral", is_ephemeral=True)
    store = opened_rows.store

    def refuse(_: object) -> None:
        raise SequenceStorageError(Reason.STORE_FULL)

    with monkeypatch.context() as patch:
        recorder = store.append_path._recorder
        patch.setattr(recorder, "_settle", lambda _: None)
        append(opened_rows, {"named": range(17), "ephemeral": range(17)})
        patch.setattr(store.open_sequences.table, "store", refuse)
        opened = store.open_sequences
        identities = [opened.resolve(NAMESPACE, 1, name) for name in ("named", "ephemeral")]
        with opened.held(identities) as held, pytest.raises(SequenceStorageError):
            recorder._store([(one, one.known.advanced(())) for one in held.values()])
        assert opened_rows.store.sequences.get(ME, "ephemeral").durable_tokens == 16
        assert opened_rows.store.sequences.get(ME, "named").durable_tokens == 0
