"""Flushes, forks and truncations of open tails."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kvstored.format.identity import ChunkId
from kvstored.io.device import DeviceError
from kvstored.store.sequences.rules import SequenceBusyError, SequenceConflictError
from kvstored.store.sequences.sequence_table import SequenceStorageError
from kvstored.store.space.allocator import device_for
from kvstored.store.write import chunk_store
from kvstored.tiers.chunks.requests import AppendOutcome
from kvstored.tiers.sequences.open_sequence import SequenceId
from kvstored_contract.layout import LayerState, LayoutError, StateKind, StateLayout
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
    slices_of,
)
from tests.support.devices import FailingDevice, GatedDevice, Wrapping
from tests.support.rows import MIXED, Rows
from tests.support.stores import (
    MIB,
    NAMESPACE,
    StoreUnderTest,
    key,
    open_store,
)
from tests.support.waiting import soon, wait_until


def test_a_flushed_tail_is_loaded_from_its_device_and_goes_on(opened_rows: StoreUnderTest) -> None:
    create(opened_rows, "a")
    append(opened_rows, {"a": range(23)})
    state = flush(opened_rows, "a", 23)
    assert (state.durable_tokens, state.record().tail is not None) == (23, True)
    check_bytes(opened_rows, 23, tail=True)
    opened_rows.store.open_sequences.end_session(1)
    opened_rows.store._dram.drop(ChunkId(NAMESPACE, ROWS.tail_key(TOKENS[:23])))
    assert append(opened_rows, {"a": range(23, 40)}, caller=OTHER) == [AppendOutcome(40)]
    check_bytes(opened_rows, 40)
    assert flush(opened_rows, "a", 40, OTHER).durable_tokens == 40
    check_bytes(opened_rows, 40, tail=True)


def test_a_flush_names_the_length_it_means(opened_rows: StoreUnderTest) -> None:
    create(opened_rows, "a")
    append(opened_rows, {"a": range(23)})
    with pytest.raises(SequenceConflictError, match="23 tokens, not the expected 24"):
        opened_rows.store.sequences.flush(ME, "a", key(1), 24)
    with pytest.raises(SequenceConflictError, match="open tail of 7"):
        opened_rows.store.sequences.flush(ME, "a", b"", 23)
    again = [flush(opened_rows, "a", 23) for _ in range(2)]
    assert again[0] == again[1]
    append(opened_rows, {"a": range(23, 32)})
    assert flush(opened_rows, "a", 32).durable_tokens == 32
    assert opened_rows.store.sequences.get(ME, "a").record().tail is None


@contextmanager
def gated_rows(path: Path) -> Iterator[tuple[StoreUnderTest, Wrapping[GatedDevice]]]:
    """A store that knows the layout of the rows, on devices whose gates are closed at first."""
    devices = Wrapping(GatedDevice)
    with open_store(path, dram_bytes=4 * MIB, wrap=devices) as opened:
        opened.store.layouts.register(MIXED)
        try:
            yield opened, devices
        finally:
            for device in devices:
                device.gate.set()


def test_a_flush_on_a_slow_device_ends_at_its_deadline_and_nobody_waits_behind_it(
    tmp_path: Path,
) -> None:
    """Bug: it held its sequence until the device was done, and a deletion timed out behind it."""
    with gated_rows(tmp_path) as (opened, devices):
        create(opened, "a", is_ephemeral=True)
        append(opened, {"a": range(40)})
        late = replace(ME, deadline=time.monotonic() + 0.05)
        state = soon(lambda: flush(opened, "a", 40, late))
        assert (state.durable_tokens, state.length_tokens) == (0, 40)
        with pytest.raises(SequenceStorageError, match="DEADLINE"):
            soon(lambda: opened.store.sequences.fork(replace(ME, deadline=0.0), "a", "b", 0))
        for device in devices:
            device.gate.set()
        assert flush(opened, "a", 40).durable_tokens == 40
        check_bytes(opened, 40, tail=True)
        for device in devices:
            device.gate.clear()
        append(opened, {"a": range(40, 64)})
        # Longer than anybody else holds the sequence; what it waits for is held back.
        late = replace(ME, deadline=time.monotonic() + 0.5)
        soon(lambda: flush(opened, "a", 64, late))
        opened.store.sequences.delete(ME, "a")
        for device in devices:
            device.gate.set()
        # What was on its way is stored all the same.
        check_bytes(opened, 64)


def test_a_flush_that_was_cut_short_took_an_acknowledged_tail_out_of_the_record(
    tmp_path: Path,
) -> None:
    """Bug: the new tail lies behind a chunk that is not durable, and took the old one's place."""
    with gated_rows(tmp_path) as (opened, devices):
        for device in devices:
            device.gate.set()
        create(opened, "a")
        append(opened, {"a": range(10)})
        assert flush(opened, "a", 10).durable_tokens == 10
        first_key = ROWS.keys(TOKENS)[0]
        slow = list(devices)[
            device_for(stripe=int.from_bytes(first_key[:4], "little"), device_count=2)
        ]
        slow.gate.clear()
        append(opened, {"a": range(10, 20)})
        late = replace(ME, deadline=time.monotonic() + 0.5)
        assert soon(lambda: flush(opened, "a", 20, late)).durable_tokens == 10
        slow.gate.set()
        assert flush(opened, "a", 20).durable_tokens == 20
        check_bytes(opened, 20, tail=True)


def test_a_sequence_that_somebody_changes_is_waited_for_until_the_deadline(
    opened_rows: StoreUnderTest,
) -> None:
    """Bug: a flush that a device held up held up everybody who named its sequence."""
    create(opened_rows, "a", "b")
    append(opened_rows, {"a": range(20)})
    held = opened_rows.store.open_sequences.held([SequenceId(NAMESPACE, "a")])
    hasty = replace(ME, deadline=time.monotonic())
    with held:
        with pytest.raises(SequenceBusyError, match="sequence 'a'"):
            soon(lambda: flush(opened_rows, "a", 20, hasty))
        parts = {"a": range(20, 30), "b": range(10)}
        assert soon(lambda: append(opened_rows, parts, caller=hasty)) == [
            AppendOutcome(20, Reason.DEADLINE),
            AppendOutcome(10),
        ]
    assert append(opened_rows, {"a": range(20, 30)}) == [AppendOutcome(30)]
    check_bytes(opened_rows, 16)


def test_a_flush_that_cannot_be_stored_says_why(tmp_path: Path) -> None:
    devices = Wrapping(FailingDevice)
    with open_store(tmp_path, dram_bytes=4 * MIB, wrap=devices) as opened_rows:
        create(opened_rows, "a")
        append(opened_rows, {"a": range(20)})
        durable(opened_rows, "a", 1)
        for device in devices:
            device.broken.add("write")
        with pytest.raises(SequenceStorageError, match="DEVICE_FAILED"):
            flush(opened_rows, "a", 20)
        state = opened_rows.store.sequences.get(ME, "a")
        assert (state.length_tokens, state.durable_tokens) == (20, 16)


def test_a_lost_tail_is_a_miss(opened_rows: StoreUnderTest) -> None:
    create(opened_rows, "a")
    append(opened_rows, {"a": range(20)})
    flush(opened_rows, "a", 20)
    opened_rows.store.open_sequences.end_session(1)
    opened_rows.store.delete(NAMESPACE, [ROWS.tail_key(TOKENS[:20])]).result()
    assert append(opened_rows, {"a": range(20, 21)}) == [AppendOutcome(16, Reason.NOT_STORED)]
    # Bug: the record went on naming the tail, after a flush of what is left as well.
    assert opened_rows.store.open_sequences.table.get(NAMESPACE, "a").tail is None
    assert append(opened_rows, {"a": range(16, 33)}) == [AppendOutcome(33)]
    check_bytes(opened_rows, 33)


def test_a_lost_tail_whose_loss_cannot_be_recorded_changes_nothing(
    opened_rows: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(opened_rows, "a", "b")
    append(opened_rows, {"a": range(20)})
    flush(opened_rows, "a", 20)
    opened_rows.store.open_sequences.end_session(1)
    opened_rows.store.delete(NAMESPACE, [ROWS.tail_key(TOKENS[:20])]).result()

    def refuse(_: object) -> None:
        raise SequenceStorageError(Reason.STORE_FULL)

    with monkeypatch.context() as patch:
        patch.setattr(opened_rows.store.open_sequences.table, "store", refuse)
        assert append(opened_rows, {"a": range(20, 21), "b": range(1)}) == [
            AppendOutcome(20, Reason.STORE_FULL),
            AppendOutcome(1),
        ]
    assert opened_rows.store.sequences.get(ME, "a").durable_tokens == 20


def test_a_tail_that_its_device_does_not_give_now_is_not_lost(tmp_path: Path) -> None:
    """Bug: one failed read dropped tokens that a flush had acknowledged."""
    devices = Wrapping(FailingDevice)
    with open_store(tmp_path, dram_bytes=4 * MIB, wrap=devices) as opened_rows:
        create(opened_rows, "a")
        append(opened_rows, {"a": range(20)})
        flush(opened_rows, "a", 20)
        opened_rows.store.open_sequences.end_session(1)
        opened_rows.store._dram.drop(ChunkId(NAMESPACE, ROWS.tail_key(TOKENS[:20])))
        for device in devices:
            device.broken.add("read")
        assert append(opened_rows, {"a": range(20, 21)}) == [
            AppendOutcome(20, Reason.DEVICE_FAILED)
        ]
        state = opened_rows.store.sequences.get(ME, "a")
        assert (state.durable_tokens, state.is_stopped) == (20, True)
        for device in devices:
            device.broken.clear()
        assert append(opened_rows, {"a": range(20, 33)}) == [AppendOutcome(33)]
        check_bytes(opened_rows, 33)


def test_a_tail_on_a_device_that_has_failed_stop_is_not_lost(tmp_path: Path) -> None:
    """Bug: the record forgot a flushed tail that is there again with its device."""
    with open_store(tmp_path, dram_bytes=4 * MIB) as opened_rows:
        create(opened_rows, "a")
        append(opened_rows, {"a": range(20)})
        flush(opened_rows, "a", 20)
        opened_rows.store.open_sequences.end_session(1)
        tail = ChunkId(NAMESPACE, ROWS.tail_key(TOKENS[:20]))
        opened_rows.store._dram.drop(tail)
        (record,) = opened_rows.store._store.find([tail])
        assert record is not None
        error = DeviceError("device", "flush", "gone", sticky=True)
        opened_rows.store._store.failures.report(record.extent.device_index, error)
        assert append(opened_rows, {"a": range(20, 21)}) == [
            AppendOutcome(20, Reason.DEVICE_FAILED)
        ]
        with pytest.raises(SequenceStorageError, match="DEVICE_FAILED"):
            opened_rows.store.sequences.truncate_tokens(ME, "a", 2)
        state = opened_rows.store.sequences.get(ME, "a")
        assert (state.durable_tokens, state.is_stopped) == (20, True)
        # Without its tail the sequence goes on at once.
        opened_rows.store.sequences.truncate_tokens(ME, "a", 4)
        assert append(opened_rows, {"a": range(16, 20)}) == [AppendOutcome(20)]


def test_a_fork_has_the_open_tail_and_goes_its_own_way(opened_rows: StoreUnderTest) -> None:
    create(opened_rows, "a")
    append(opened_rows, {"a": range(20)})
    fork = opened_rows.store.sequences.fork(ME, "a", "b", 0)
    assert (fork.length_tokens, fork.durable_tokens) == (20, 16)
    others = TOKENS[:20] + [511 - token for token in TOKENS[20:]]
    append(opened_rows, {"b": range(20, 40)}, tokens=others)
    append(opened_rows, {"a": range(20, 40)})
    check_bytes(opened_rows, 40)
    second = ROWS.keys(others[:32])[1]
    assert slices_of(opened_rows, second, 16) == ROWS.slices(others[16:32])
    flush(opened_rows, "a", 40)
    opened_rows.store.sequences.fork(ME, "a", "c", 0)
    opened_rows.store.open_sequences.end_session(1)
    assert opened_rows.store.sequences.get(ME, "c").length_tokens == 40
    assert opened_rows.store.sequences.fork(ME, "c", "d", 1).length_tokens == 16


def test_a_fork_without_room_has_what_is_flushed(opened_rows: StoreUnderTest) -> None:
    rows, store = Rows(BIG), opened_rows.store
    for name in "ab":
        store.sequences.create(ME, name, BIG)
    append(opened_rows, {"a": range(2), "b": range(1)}, rows=rows)
    fork = store.sequences.fork(ME, "a", "c", 0)
    assert (fork.length_tokens, fork.is_stopped) == (0, True)


@pytest.mark.parametrize("drop_tokens", [1, 3, 4, 5, 19, 20, 24, 36])
@pytest.mark.parametrize("is_in_dram", [True, False])
def test_truncated_to_any_token_and_completed_again(
    opened_rows: StoreUnderTest, drop_tokens: int, is_in_dram: bool
) -> None:
    create(opened_rows, "a")
    append(opened_rows, {"a": range(36)})
    durable(opened_rows, "a", 2)
    if not is_in_dram:
        for chunk_key in ROWS.keys(TOKENS[:36]):
            opened_rows.store._dram.drop(ChunkId(NAMESPACE, chunk_key))
    left = 36 - drop_tokens
    state = opened_rows.store.sequences.truncate_tokens(ME, "a", drop_tokens)
    assert (state.length_tokens, state.durable_tokens) == (left, left // 16 * 16)
    others = TOKENS[:left] + [511 - token for token in TOKENS[left:]]
    assert append(opened_rows, {"a": range(left, 50)}, tokens=others) == [AppendOutcome(50)]
    for index, chunk_key in enumerate(ROWS.keys(others[:50])):
        assert slices_of(opened_rows, chunk_key, 16) == ROWS.slices(others[index * 16 :][:16])


def test_truncated_behind_a_flushed_tail_that_is_not_loaded(opened_rows: StoreUnderTest) -> None:
    create(opened_rows, "a")
    append(opened_rows, {"a": range(25)})
    flush(opened_rows, "a", 25)
    opened_rows.store.open_sequences.end_session(1)
    state = opened_rows.store.sequences.truncate_tokens(ME, "a", 4)
    assert (state.length_tokens, state.durable_tokens) == (21, 16)
    append(opened_rows, {"a": range(21, 32)})
    check_bytes(opened_rows, 32)


def test_a_layout_that_the_index_does_not_know(tmp_path: Path) -> None:
    with open_store(tmp_path, dram_bytes=4 * MIB) as opened_rows:
        create(opened_rows, "a")
        append(opened_rows, {"a": range(20)})
        flush(opened_rows, "a", 20)
        opened_rows.store.open_sequences.end_session(1)
        wait_until(lambda: not opened_rows.store.open_sequences._sequences)
        assert opened_rows.store.sequences.get(ME, "a").length_tokens == 0
        with pytest.raises(SequenceStorageError, match="LAYOUT_UNKNOWN"):
            opened_rows.store.sequences.truncate_tokens(ME, "a", 4)
        assert append(opened_rows, {"a": range(20, 33)}) == [AppendOutcome(33)]
        check_bytes(opened_rows, 33)


def test_a_layout_that_the_index_has_no_room_for_made_sequences_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: a conversation in it was opened as an empty one, without an error."""
    monkeypatch.setattr(chunk_store, "LAYOUTS_MAX", 0)
    with open_store(tmp_path, dram_bytes=4 * MIB) as opened_rows:
        opened_rows.store.layouts.register(MIXED)
        create(opened_rows, "a")
        append(opened_rows, {"a": range(20)})
        flush(opened_rows, "a", 20)
        opened_rows.store.open_sequences.end_session(1)
        wait_until(lambda: not opened_rows.store.open_sequences._sequences)
        assert opened_rows.store._store.index.layout(MIXED.layout_id) is None
        assert opened_rows.store.sequences.get(ME, "a").length_tokens == 20


@pytest.mark.parametrize("token_bytes", [1, 3])
def test_a_chunk_that_has_no_halves_is_not_cut(
    opened_rows: StoreUnderTest, token_bytes: int
) -> None:
    """Bug: its head was flushed with bytes that nobody had stored under that key."""
    layers = (LayerState(StateKind.HIDDEN, 64), LayerState(StateKind.KV, token_bytes))
    odd = StateLayout(model="odd", dtype="u8", layers=layers, chunk_tokens=16)
    opened_rows.store.layouts.register(odd)
    wait_until(lambda: opened_rows.store._store.index.layout(odd.layout_id) is not None)
    sequences = opened_rows.store.sequences
    sequences.create(ME, "a", odd, keys=[key(1), key(2)])
    with pytest.raises(LayoutError, match=f"layer 1 has {token_bytes} bytes a token"):
        sequences.truncate_tokens(ME, "a", 5)
    assert sequences.get(ME, "a").length_tokens == 32
    assert open_bytes(opened_rows) == 0
    assert sequences.truncate_tokens(ME, "a", 16).length_tokens == 16


def test_truncated_where_the_chunk_is_gone_changes_nothing(opened_rows: StoreUnderTest) -> None:
    create(opened_rows, "a")
    append(opened_rows, {"a": range(36)})
    durable(opened_rows, "a", 2)
    opened_rows.store.delete(NAMESPACE, [ROWS.keys(TOKENS[:32])[1]]).result()
    with pytest.raises(SequenceStorageError, match="NOT_STORED"):
        opened_rows.store.sequences.truncate_tokens(ME, "a", 10)
    assert opened_rows.store.sequences.get(ME, "a").length_tokens == 36


def test_truncations_by_chunks(opened_rows: StoreUnderTest) -> None:
    create(opened_rows, "a")
    append(opened_rows, {"a": range(52)})
    durable(opened_rows, "a", 3)
    front = opened_rows.store.sequences.truncate_front(ME, "a", 1)
    assert (front.length_tokens, front.tail_tokens, front.dropped_chunks) == (36, 4, 1)
    back = opened_rows.store.sequences.truncate_back(ME, "a", 1)
    assert (back.length_tokens, back.tail_tokens) == (16, 0)
    assert open_bytes(opened_rows) == 0
    assert opened_rows.store.sequences.append(ME, "a", [key(1)], 1).length_tokens == 32
