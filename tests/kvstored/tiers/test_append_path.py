"""Appends over a whole store in this process: what is kept, dropped, written and given back.

Fails when a record names a key before its chunk and all before it are durable (seen: keys where
none may be), and when the recorder waits for a sequence that is in use (seen: it hangs).
"""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from kvstored.format.identity import ChunkId
from kvstored.io.device import DeviceError
from kvstored.store.placement import Placement
from kvstored.store.plan import Order
from kvstored.store.sequence_state import SequenceState
from kvstored.store.sequence_table import SequenceStorageError
from kvstored.store.sequences import (
    SequenceConflictError,
    SequenceExistsError,
    SequenceLimitError,
    SequenceUnknownError,
)
from kvstored.tiers import open_sequences
from kvstored.tiers.dram import OPEN_SHARE_MAX
from kvstored.tiers.open_sequence import OpenSequence, SequenceId
from kvstored.tiers.requests import AppendItem, AppendOutcome, AppendRequest, ReadRequest
from kvstored.tiers.sequences import Caller
from kvstored_contract.board import SliceState
from kvstored_contract.layout import LayerState, LayoutError, StateKind, StateLayout
from kvstored_contract.reasons import Reason
from tests.support.devices import FailingDevice, GatedDevice, Wrapping
from tests.support.rows import MIXED, Rows
from tests.support.stores import (
    MIB,
    NAMESPACE,
    StoreUnderTest,
    key,
    new_board,
    open_store,
)
from tests.support.waiting import PATIENCE_S, wait_until

ROWS = Rows()
TOKENS = [number * 37 % 512 for number in range(200)]
ME, OTHER = Caller(NAMESPACE, 1), Caller(NAMESPACE, 2)
BASE = 4 * MIB
BIG = StateLayout(
    model="big", dtype="f", layers=(LayerState(StateKind.HIDDEN, 15 * 4096),) * 4, chunk_tokens=4
)
"""Chunks of nearly a slab, so that a frame is a whole slab of DRAM."""


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[StoreUnderTest]:
    with open_store(tmp_path, dram_bytes=4 * MIB) as opened:
        opened.store.register_layout(MIXED)
        wait_until(lambda: opened.store._store.index.layout(MIXED.layout_id) is not None)
        yield opened


def append(
    opened: StoreUnderTest,
    parts: dict[str, range],
    *,
    caller: Caller = ME,
    tokens: list[int] = TOKENS,
    rows: Rows = ROWS,
) -> list[AppendOutcome]:
    """Appends tokens at these positions, all in one call."""
    step = [tokens[position] for part in parts.values() for position in part]
    snapshot = rows.snapshot(step)
    opened.arena[: len(snapshot)] = snapshot
    items, row, chunk_tokens = [], 0, rows.layout.chunk_tokens
    for name, part in parts.items():
        keys = rows.keys(tokens)[part.start // chunk_tokens : part.stop // chunk_tokens]
        items.append(
            AppendItem(
                name=name,
                first_token=part.start,
                first_row=row,
                token_count=len(part),
                keys=tuple(keys),
            )
        )
        row += len(part)
    return opened.store.append(
        AppendRequest(
            namespace_id=caller.namespace_id,
            session_id=caller.session_id,
            layout=rows.layout,
            row_count=len(step),
            source=opened.arena[: len(snapshot)],
            items=tuple(items),
        )
    )


def create(opened: StoreUnderTest, *names: str, is_ephemeral: bool = False) -> None:
    for name in names:
        opened.store.sequences.create(ME, name, MIXED, is_ephemeral=is_ephemeral)


def durable(opened: StoreUnderTest, name: str, chunk_count: int) -> SequenceState:
    """The sequence once its record names so many chunks."""
    sequences = opened.store.sequences
    wait_until(lambda: len(sequences.get(ME, name).record().keys) == chunk_count)
    return sequences.get(ME, name)


def flush(opened: StoreUnderTest, name: str, length: int, caller: Caller = ME) -> SequenceState:
    return opened.store.sequences.flush(caller, name, ROWS.tail_key(TOKENS[:length]), length)


def open_bytes(opened: StoreUnderTest) -> int:
    return opened.store._dram.open_bytes


def slices_of(opened: StoreUnderTest, chunk_key: bytes, token_count: int) -> list[bytes]:
    """A chunk read back."""
    board = new_board(1, MIXED.layer_count)
    stride = MIXED.layer_stride
    opened.store.read(
        ReadRequest(
            namespace_id=NAMESPACE,
            layout=MIXED,
            keys=(chunk_key,),
            order=Order.HEAD_FIRST,
            first_layer=0,
            layer_count=MIXED.layer_count,
            arena=opened.arena,
            takes_transfers=False,
            placement=Placement(base=BASE, layer_stride=stride),
            board=board,
            notify=lambda: None,
            window_bytes=0,
            deadline=time.monotonic() + PATIENCE_S,
        )
    ).wait(PATIENCE_S)
    assert (board.states == SliceState.RESIDENT).all()
    return [
        bytes(opened.arena[start : start + MIXED.slice_bytes(layer, token_count)])
        for layer in range(MIXED.layer_count)
        for start in (BASE + layer * stride,)
    ]


def check_bytes(opened: StoreUnderTest, length: int, *, tail: bool = False) -> None:
    for index, chunk_key in enumerate(ROWS.keys(TOKENS[:length])):
        assert slices_of(opened, chunk_key, 16) == ROWS.slices(TOKENS[index * 16 :][:16])
    if tail:
        rest = length % 16
        assert slices_of(opened, ROWS.tail_key(TOKENS[:length]), rest) == ROWS.slices(
            TOKENS[length - rest : length]
        )


@pytest.mark.parametrize("is_ephemeral", [False, True])
def test_steps_become_chunks(opened: StoreUnderTest, is_ephemeral: bool) -> None:
    create(opened, "a", "b", is_ephemeral=is_ephemeral)
    assert append(opened, {"a": range(5), "b": range(40)}) == [AppendOutcome(5), AppendOutcome(40)]
    for position in range(5, 38):
        assert append(opened, {"a": range(position, position + 1)}) == [AppendOutcome(position + 1)]
    check_bytes(opened, 40)
    assert durable(opened, "a", 2).durable_tokens == 32
    assert opened.store.sequences.get(ME, "a").length_tokens == 38
    for chunk_key in ROWS.keys(TOKENS[:40]):
        opened.store._dram.drop(ChunkId(NAMESPACE, chunk_key))
    check_bytes(opened, 40)
    # Both sequences have the same tokens: each chunk was stored once.
    assert opened.store.stats().chunk_count == 2
    assert opened.store.stats().counters["append_stored_chunks"] == 2
    assert opened.store.stats().counters["append_existed_chunks"] == 2


def test_a_chunk_is_readable_before_it_is_durable_and_named_only_then(tmp_path: Path) -> None:
    devices = Wrapping(GatedDevice)
    with open_store(tmp_path, dram_bytes=4 * MIB, wrap=devices) as opened:
        create(opened, "a")
        append(opened, {"a": range(33)})
        check_bytes(opened, 33)
        state = opened.store.sequences.get(ME, "a")
        assert (state.length_tokens, state.durable_tokens) == (33, 0)
        for device in devices:
            device.gate.set()
        durable(opened, "a", 2)


def test_keys_wait_for_those_before_them(tmp_path: Path) -> None:
    devices = Wrapping(GatedDevice)
    with open_store(tmp_path, dram_bytes=4 * MIB, wrap=devices) as opened:
        create(opened, "a")
        append(opened, {"a": range(32)})
        stripe = int.from_bytes(ROWS.keys(TOKENS[:16])[0][:4], "little")
        devices[(stripe + 1) % 2].gate.set()
        second = ChunkId(NAMESPACE, ROWS.keys(TOKENS[:32])[1])
        wait_until(lambda: opened.store._store.find([second]) != [None])
        append(opened, {"a": range(32, 33)})
        assert opened.store.sequences.get(ME, "a").record().keys == ()
        devices[stripe % 2].gate.set()
        assert durable(opened, "a", 2).durable_tokens == 32


def test_a_sequence_begins_behind_stored_chunks(opened: StoreUnderTest) -> None:
    create(opened, "a")
    append(opened, {"a": range(40)})
    keys = ROWS.keys(TOKENS[:32])
    opened.store.sequences.create(ME, "b", MIXED, keys=keys, is_ephemeral=True)
    assert append(opened, {"b": range(32, 50)}) == [AppendOutcome(50)]
    check_bytes(opened, 50)


def test_what_does_not_fit_is_refused_and_changes_nothing(opened: StoreUnderTest) -> None:
    create(opened, "a", "b")
    append(opened, {"a": range(5)})
    other = Rows(StateLayout(model="x", dtype="f", layers=MIXED.layers, chunk_tokens=16))
    opened.store.register_layout(other.layout)
    assert append(opened, {"a": range(6, 7), "c": range(1), "b": range(3)}) == [
        AppendOutcome(5, Reason.SEQUENCE_CONFLICT),
        AppendOutcome(0, Reason.SEQUENCE_UNKNOWN),
        AppendOutcome(3),
    ]
    assert append(opened, {"a": range(5, 6)}, rows=other) == [
        AppendOutcome(5, Reason.SEQUENCE_CONFLICT)
    ]
    assert append(opened, {"a": range(5, 16)}) == [AppendOutcome(16)]
    check_bytes(opened, 16)


def test_a_full_dram_drops_the_rows_of_whole_items_and_stops_the_sequence(
    opened: StoreUnderTest,
) -> None:
    rows = Rows(BIG)
    store = opened.store
    for name in "abc":
        store.sequences.create(ME, name, BIG)
    # Half of four slabs are for open frames.
    assert OPEN_SHARE_MAX == 0.5
    assert append(opened, {"a": range(1), "b": range(9), "c": range(2)}, rows=rows) == [
        AppendOutcome(1),
        AppendOutcome(0, Reason.DRAM_FULL),
        AppendOutcome(2),
    ]
    assert store.sequences.get(ME, "b").is_stopped
    assert not store.sequences.get(ME, "a").is_stopped
    assert append(opened, {"b": range(9, 10)}, rows=rows) == [
        AppendOutcome(0, Reason.SEQUENCE_CONFLICT)
    ]
    store.sequences.delete(ME, "a")
    assert append(opened, {"b": range(1)}, rows=rows) == [AppendOutcome(1)]
    assert not store.sequences.get(ME, "b").is_stopped
    store.sequences.delete(ME, "b")
    store.sequences.delete(ME, "c")
    assert open_bytes(opened) == 0
    assert store.stats().counters["append_dropped_rows"] == 10


def test_a_chunk_that_cannot_be_written_ends_its_sequence(tmp_path: Path) -> None:
    devices = Wrapping(FailingDevice)
    with open_store(tmp_path, dram_bytes=4 * MIB, wrap=devices) as opened:
        create(opened, "a")
        append(opened, {"a": range(20)})
        flush(opened, "a", 20)
        for device in devices:
            device.broken.add("write")
        append(opened, {"a": range(20, 50)})
        wait_until(lambda: opened.store.sequences.get(ME, "a").is_stopped)
        # What was flushed of the chunk is left of it.
        state = opened.store.sequences.get(ME, "a")
        assert (state.length_tokens, state.durable_tokens) == (20, 20)
        assert open_bytes(opened) == 0
        assert append(opened, {"a": range(50, 51)}) == [AppendOutcome(20, Reason.SEQUENCE_CONFLICT)]
        for device in devices:
            device.broken.clear()
        assert append(opened, {"a": range(20, 33)}) == [AppendOutcome(33)]
        durable(opened, "a", 2)
        check_bytes(opened, 33)


def test_a_store_without_room_ends_the_sequence_at_that_chunk(tmp_path: Path) -> None:
    with open_store(tmp_path, dram_bytes=4 * MIB, device_count=1) as opened:
        create(opened, "a", is_ephemeral=True)
        error = DeviceError("device0", "write", "gone", sticky=True)
        opened.store._store.device_failed(0, error)
        assert append(opened, {"a": range(40)}) == [AppendOutcome(0, Reason.STORE_FULL)]
        assert open_bytes(opened) == 0
        assert opened.store.stats().dram_used_bytes == 0


def test_a_fault_while_a_chunk_is_sealed_gives_everything_back(
    opened: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(opened, "a")

    def broken(*_: object) -> None:
        raise RuntimeError("broken")

    with monkeypatch.context() as patch:
        patch.setattr(opened.store._store, "find", broken)
        assert append(opened, {"a": range(20)}) == [AppendOutcome(0, Reason.INTERNAL)]
    assert opened.store.stats().dram_used_bytes == 0
    with monkeypatch.context() as patch:
        patch.setattr("kvstored.tiers.append_path.copy_rows", broken)
        with pytest.raises(TypeError):
            append(opened, {"a": range(20)})
    assert opened.store.stats().dram_used_bytes == 0
    assert append(opened, {"a": range(20)}) == [AppendOutcome(20)]


def test_a_fault_between_two_chunks_gives_back_the_frames_of_all_items(
    opened: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: they counted as open for ever, and chunks that nobody wrote were recorded."""
    create(opened, "a", "b", "c")
    append(opened, {"c": range(3)})
    kept_bytes, path = open_bytes(opened), opened.store._sequence_parts.append_path
    watch, watched = path._recorder.watch, []

    def broken(sequence: OpenSequence, chunk_key: bytes, outcome: "Future[Reason]") -> None:
        if len(watched) == 2:
            raise RuntimeError("broken")
        watched.append(chunk_key)
        watch(sequence, chunk_key, outcome)

    with monkeypatch.context() as patch:
        patch.setattr(path._recorder, "watch", broken)
        with pytest.raises(RuntimeError, match="broken"):
            append(opened, {"a": range(20), "b": range(50), "c": range(3, 20)})
    sequences = opened.store.sequences
    assert [sequences.get(ME, name).length_tokens for name in "abc"] == [20, 16, 3]
    assert durable(opened, "a", 1).length_tokens == 20
    assert durable(opened, "b", 1).is_stopped
    assert open_bytes(opened) == 2 * kept_bytes
    assert append(opened, {"b": range(16, 50)}) == [AppendOutcome(50)]
    check_bytes(opened, 50)
    opened.store.end_session(1)
    assert open_bytes(opened) == 0


def test_the_end_of_a_session_gives_back_what_is_not_flushed(opened: StoreUnderTest) -> None:
    create(opened, "named", "flushed", "other")
    create(opened, "ephemeral", is_ephemeral=True)
    append(opened, {name: range(20) for name in ("named", "flushed", "ephemeral")})
    flush(opened, "flushed", 20)
    append(opened, {"flushed": range(20, 25)})
    append(opened, {"other": range(3)}, caller=ME)
    append(opened, {"other": range(3, 5)}, caller=OTHER)
    assert opened.store.sequences.is_ephemeral(ME, "ephemeral")
    opened.store.end_session(1)
    with pytest.raises(SequenceUnknownError):
        opened.store.sequences.get(ME, "ephemeral")
    sequences = opened.store.sequences
    assert sequences.get(OTHER, "named").length_tokens == 16
    assert sequences.get(OTHER, "flushed").length_tokens == 20
    assert sequences.get(OTHER, "other").length_tokens == 5
    opened.store.end_session(2)
    assert open_bytes(opened) == 0
    durable(opened, "named", 1)
    wait_until(lambda: not opened.store._sequence_parts.opened._sequences)
    assert not opened.store._sequence_parts.opened._owned


def test_chunks_become_durable_after_the_end_of_their_session(tmp_path: Path) -> None:
    devices = Wrapping(GatedDevice)
    with open_store(tmp_path, dram_bytes=4 * MIB, wrap=devices) as opened:
        create(opened, "a")
        append(opened, {"a": range(33)})
        opened.store.end_session(1)
        assert opened.store.sequences.get(ME, "a").record().keys == ()
        for device in devices:
            device.gate.set()
        durable(opened, "a", 2)


def test_an_ephemeral_sequence_is_its_sessions_own(opened: StoreUnderTest) -> None:
    create(opened, "a", is_ephemeral=True)
    with pytest.raises(SequenceUnknownError):
        opened.store.sequences.get(OTHER, "a")
    opened.store.sequences.create(OTHER, "a", MIXED, is_ephemeral=True)
    assert opened.store.sequences.list(ME) == []
    for is_ephemeral in (False, True):
        with pytest.raises(SequenceExistsError):
            create(opened, "a", is_ephemeral=is_ephemeral)
    create(opened, "b")
    with pytest.raises(SequenceExistsError):
        create(opened, "b", is_ephemeral=True)
    opened.store.sequences.delete(ME, "a")
    with pytest.raises(SequenceUnknownError):
        opened.store.sequences.get(ME, "a")


def test_an_ephemeral_sequence_that_does_not_exist_hides_none(opened: StoreUnderTest) -> None:
    """Bug: who waited for a deleted one, or made one, hid the named one meanwhile."""
    create(opened, "a")
    with opened.store._sequence_parts.opened.held([SequenceId(NAMESPACE, "a", 1)]):
        assert not opened.store.sequences.is_ephemeral(ME, "a")
        assert opened.store.sequences.get(ME, "a").length_tokens == 0
    create(opened, "b", is_ephemeral=True)
    assert opened.store.sequences.is_ephemeral(ME, "b")
    opened.store.end_session(1)
    assert not opened.store.sequences.is_ephemeral(ME, "b")
    assert not opened.store._sequence_parts.opened._ephemeral


@pytest.mark.parametrize("is_ephemeral", [False, True])
def test_a_fork_that_cannot_be_made_belongs_to_nobody(
    opened: StoreUnderTest, monkeypatch: pytest.MonkeyPatch, is_ephemeral: bool
) -> None:
    """Bug: while somebody waited for its name, the end of the session failed on it."""
    create(opened, "a", is_ephemeral=is_ephemeral)
    append(opened, {"a": range(20)})
    sequences, all_opened = opened.store.sequences, opened.store._sequence_parts.opened
    identity = SequenceId(NAMESPACE, "b", ME.session_id * is_ephemeral)
    owned: list[int] = []

    def refuse(*_: object) -> None:
        # As somebody who waits for the name.
        all_opened._sequences[identity].users += 1
        owned.append(all_opened._sequences[identity].owner)
        raise SequenceStorageError(Reason.STORE_FULL)

    with monkeypatch.context() as patch:
        patch.setattr(all_opened.table, "create", refuse)
        patch.setattr(all_opened, "make_ephemeral", refuse)
        with pytest.raises(SequenceStorageError):
            sequences.fork(ME, "a", "b", 0)
    assert owned == [1]
    assert all_opened._sequences[identity].owner == 0
    all_opened._sequences[identity].users -= 1
    opened.store.end_session(1)
    assert open_bytes(opened) == 0


def test_the_end_of_a_session_forgets_what_was_never_looked_up(opened: StoreUnderTest) -> None:
    create(opened, "a", "b")
    append(opened, {"b": range(3)})
    all_opened = opened.store._sequence_parts.opened
    with all_opened.held([SequenceId(NAMESPACE, "a")]) as held:
        (sequence,) = held.values()
        all_opened.own(sequence, 1, 0)
        sequence.users += 1
    sequence.state = None
    opened.store.end_session(1)
    assert sequence.owner == 0
    assert open_bytes(opened) == 0
    sequence.users -= 1


def test_a_session_owns_so_many_sequences(
    opened: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_sequences, "OPEN_SEQUENCES_PER_SESSION_MAX", 2)
    create(opened, "a", "b", "c")
    assert append(opened, {name: range(1) for name in "abc"}) == [
        AppendOutcome(1),
        AppendOutcome(1),
        AppendOutcome(0, Reason.LIMIT_EXCEEDED),
    ]
    assert append(opened, {"c": range(1)}, caller=OTHER) == [AppendOutcome(1)]
    opened.store.sequences.delete(ME, "a")
    assert append(opened, {"b": range(1, 2), "c": range(1, 2)}) == [
        AppendOutcome(2),
        AppendOutcome(2),
    ]


def test_the_sequences_of_a_session_have_so_many_chunks(
    opened: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_sequences, "OPEN_CHUNKS_PER_SESSION_MAX", 3)
    create(opened, "a", "b", is_ephemeral=True)
    assert append(opened, {"a": range(33), "b": range(33)}) == [
        AppendOutcome(33),
        AppendOutcome(0, Reason.LIMIT_EXCEEDED),
    ]
    with pytest.raises(SequenceLimitError, match="at most 3 chunks"):
        opened.store.sequences.create(ME, "c", MIXED, keys=[key(1), key(2)], is_ephemeral=True)
    with pytest.raises(SequenceLimitError):
        opened.store.sequences.append(ME, "b", [key(1), key(2)], 0)
    with pytest.raises(SequenceLimitError):
        opened.store.sequences.fork(ME, "a", "d", 0)
    with pytest.raises(SequenceUnknownError):
        opened.store.sequences.get(ME, "d")
    opened.store.sequences.delete(ME, "a")
    assert append(opened, {"b": range(33)}) == [AppendOutcome(33)]
    opened.store.end_session(1)
    assert not opened.store._sequence_parts.opened._chunk_counts[1]


def test_a_flushed_tail_is_loaded_from_its_device_and_goes_on(opened: StoreUnderTest) -> None:
    create(opened, "a")
    append(opened, {"a": range(23)})
    state = flush(opened, "a", 23)
    assert (state.durable_tokens, state.record().tail is not None) == (23, True)
    check_bytes(opened, 23, tail=True)
    opened.store.end_session(1)
    opened.store._dram.drop(ChunkId(NAMESPACE, ROWS.tail_key(TOKENS[:23])))
    assert append(opened, {"a": range(23, 40)}, caller=OTHER) == [AppendOutcome(40)]
    check_bytes(opened, 40)
    assert flush(opened, "a", 40, OTHER).durable_tokens == 40
    check_bytes(opened, 40, tail=True)


def test_a_flush_names_the_length_it_means(opened: StoreUnderTest) -> None:
    create(opened, "a")
    append(opened, {"a": range(23)})
    with pytest.raises(SequenceConflictError, match="23 tokens, not the expected 24"):
        opened.store.sequences.flush(ME, "a", key(1), 24)
    with pytest.raises(SequenceConflictError, match="open tail of 7"):
        opened.store.sequences.flush(ME, "a", b"", 23)
    again = [flush(opened, "a", 23) for _ in range(2)]
    assert again[0] == again[1]
    append(opened, {"a": range(23, 32)})
    assert flush(opened, "a", 32).durable_tokens == 32
    assert opened.store.sequences.get(ME, "a").record().tail is None


def test_a_flush_that_cannot_be_stored_says_why(tmp_path: Path) -> None:
    devices = Wrapping(FailingDevice)
    with open_store(tmp_path, dram_bytes=4 * MIB, wrap=devices) as opened:
        create(opened, "a")
        append(opened, {"a": range(20)})
        durable(opened, "a", 1)
        for device in devices:
            device.broken.add("write")
        with pytest.raises(SequenceStorageError, match="DEVICE_FAILED"):
            flush(opened, "a", 20)
        state = opened.store.sequences.get(ME, "a")
        assert (state.length_tokens, state.durable_tokens) == (20, 16)


def test_a_lost_tail_is_a_miss(opened: StoreUnderTest) -> None:
    create(opened, "a")
    append(opened, {"a": range(20)})
    flush(opened, "a", 20)
    opened.store.end_session(1)
    opened.store.delete(NAMESPACE, [ROWS.tail_key(TOKENS[:20])]).result()
    assert append(opened, {"a": range(20, 21)}) == [AppendOutcome(16, Reason.NOT_STORED)]
    # Bug: the record went on naming the tail, after a flush of what is left as well.
    assert opened.store._sequence_parts.opened.table.get(NAMESPACE, "a").tail is None
    assert append(opened, {"a": range(16, 33)}) == [AppendOutcome(33)]
    check_bytes(opened, 33)


def test_a_lost_tail_whose_loss_cannot_be_recorded_changes_nothing(
    opened: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(opened, "a", "b")
    append(opened, {"a": range(20)})
    flush(opened, "a", 20)
    opened.store.end_session(1)
    opened.store.delete(NAMESPACE, [ROWS.tail_key(TOKENS[:20])]).result()

    def refuse(_: object) -> None:
        raise SequenceStorageError(Reason.STORE_FULL)

    with monkeypatch.context() as patch:
        patch.setattr(opened.store._sequence_parts.opened.table, "store", refuse)
        assert append(opened, {"a": range(20, 21), "b": range(1)}) == [
            AppendOutcome(20, Reason.STORE_FULL),
            AppendOutcome(1),
        ]
    assert opened.store.sequences.get(ME, "a").durable_tokens == 20


def test_a_tail_that_its_device_does_not_give_now_is_not_lost(tmp_path: Path) -> None:
    """Bug: one failed read dropped tokens that a flush had acknowledged."""
    devices = Wrapping(FailingDevice)
    with open_store(tmp_path, dram_bytes=4 * MIB, wrap=devices) as opened:
        create(opened, "a")
        append(opened, {"a": range(20)})
        flush(opened, "a", 20)
        opened.store.end_session(1)
        opened.store._dram.drop(ChunkId(NAMESPACE, ROWS.tail_key(TOKENS[:20])))
        for device in devices:
            device.broken.add("read")
        assert append(opened, {"a": range(20, 21)}) == [AppendOutcome(20, Reason.DEVICE_FAILED)]
        state = opened.store.sequences.get(ME, "a")
        assert (state.durable_tokens, state.is_stopped) == (20, True)
        for device in devices:
            device.broken.clear()
        assert append(opened, {"a": range(20, 33)}) == [AppendOutcome(33)]
        check_bytes(opened, 33)


def test_a_fork_has_the_open_tail_and_goes_its_own_way(opened: StoreUnderTest) -> None:
    create(opened, "a")
    append(opened, {"a": range(20)})
    fork = opened.store.sequences.fork(ME, "a", "b", 0)
    assert (fork.length_tokens, fork.durable_tokens) == (20, 16)
    others = TOKENS[:20] + [511 - token for token in TOKENS[20:]]
    append(opened, {"b": range(20, 40)}, tokens=others)
    append(opened, {"a": range(20, 40)})
    check_bytes(opened, 40)
    second = ROWS.keys(others[:32])[1]
    assert slices_of(opened, second, 16) == ROWS.slices(others[16:32])
    flush(opened, "a", 40)
    opened.store.sequences.fork(ME, "a", "c", 0)
    opened.store.end_session(1)
    assert opened.store.sequences.get(ME, "c").length_tokens == 40
    assert opened.store.sequences.fork(ME, "c", "d", 1).length_tokens == 16


def test_a_fork_without_room_has_what_is_flushed(opened: StoreUnderTest) -> None:
    rows, store = Rows(BIG), opened.store
    for name in "ab":
        store.sequences.create(ME, name, BIG)
    append(opened, {"a": range(2), "b": range(1)}, rows=rows)
    fork = store.sequences.fork(ME, "a", "c", 0)
    assert (fork.length_tokens, fork.is_stopped) == (0, True)


@pytest.mark.parametrize("drop_tokens", [1, 3, 4, 5, 19, 20, 24, 36])
@pytest.mark.parametrize("is_in_dram", [True, False])
def test_truncated_to_any_token_and_completed_again(
    opened: StoreUnderTest, drop_tokens: int, is_in_dram: bool
) -> None:
    create(opened, "a")
    append(opened, {"a": range(36)})
    durable(opened, "a", 2)
    if not is_in_dram:
        for chunk_key in ROWS.keys(TOKENS[:36]):
            opened.store._dram.drop(ChunkId(NAMESPACE, chunk_key))
    left = 36 - drop_tokens
    state = opened.store.sequences.truncate_tokens(ME, "a", drop_tokens)
    assert (state.length_tokens, state.durable_tokens) == (left, left // 16 * 16)
    others = TOKENS[:left] + [511 - token for token in TOKENS[left:]]
    assert append(opened, {"a": range(left, 50)}, tokens=others) == [AppendOutcome(50)]
    for index, chunk_key in enumerate(ROWS.keys(others[:50])):
        assert slices_of(opened, chunk_key, 16) == ROWS.slices(others[index * 16 :][:16])


def test_truncated_behind_a_flushed_tail_that_is_not_loaded(opened: StoreUnderTest) -> None:
    create(opened, "a")
    append(opened, {"a": range(25)})
    flush(opened, "a", 25)
    opened.store.end_session(1)
    state = opened.store.sequences.truncate_tokens(ME, "a", 4)
    assert (state.length_tokens, state.durable_tokens) == (21, 16)
    append(opened, {"a": range(21, 32)})
    check_bytes(opened, 32)


def test_a_layout_that_the_index_does_not_know(tmp_path: Path) -> None:
    with open_store(tmp_path, dram_bytes=4 * MIB) as opened:
        create(opened, "a")
        append(opened, {"a": range(20)})
        flush(opened, "a", 20)
        opened.store.end_session(1)
        wait_until(lambda: not opened.store._sequence_parts.opened._sequences)
        assert opened.store.sequences.get(ME, "a").length_tokens == 0
        with pytest.raises(SequenceStorageError, match="LAYOUT_UNKNOWN"):
            opened.store.sequences.truncate_tokens(ME, "a", 4)
        assert append(opened, {"a": range(20, 33)}) == [AppendOutcome(33)]
        check_bytes(opened, 33)


@pytest.mark.parametrize("token_bytes", [1, 3])
def test_a_chunk_that_has_no_halves_is_not_cut(opened: StoreUnderTest, token_bytes: int) -> None:
    """Bug: its head was flushed with bytes that nobody had stored under that key."""
    layers = (LayerState(StateKind.HIDDEN, 64), LayerState(StateKind.KV, token_bytes))
    odd = StateLayout(model="odd", dtype="u8", layers=layers, chunk_tokens=16)
    opened.store.register_layout(odd)
    wait_until(lambda: opened.store._store.index.layout(odd.layout_id) is not None)
    sequences = opened.store.sequences
    sequences.create(ME, "a", odd, keys=[key(1), key(2)])
    with pytest.raises(LayoutError, match=f"layer 1 has {token_bytes} bytes a token"):
        sequences.truncate_tokens(ME, "a", 5)
    assert sequences.get(ME, "a").length_tokens == 32
    assert open_bytes(opened) == 0
    assert sequences.truncate_tokens(ME, "a", 16).length_tokens == 16


def test_truncated_where_the_chunk_is_gone_changes_nothing(opened: StoreUnderTest) -> None:
    create(opened, "a")
    append(opened, {"a": range(36)})
    durable(opened, "a", 2)
    opened.store.delete(NAMESPACE, [ROWS.keys(TOKENS[:32])[1]]).result()
    with pytest.raises(SequenceStorageError, match="NOT_STORED"):
        opened.store.sequences.truncate_tokens(ME, "a", 10)
    assert opened.store.sequences.get(ME, "a").length_tokens == 36


def test_truncations_by_chunks(opened: StoreUnderTest) -> None:
    create(opened, "a")
    append(opened, {"a": range(52)})
    durable(opened, "a", 3)
    front = opened.store.sequences.truncate_front(ME, "a", 1)
    assert (front.length_tokens, front.tail_tokens, front.dropped_chunks) == (36, 4, 1)
    back = opened.store.sequences.truncate_back(ME, "a", 1)
    assert (back.length_tokens, back.tail_tokens) == (16, 0)
    assert open_bytes(opened) == 0
    assert opened.store.sequences.append(ME, "a", [key(1)], 1).length_tokens == 32


def test_many_append_to_one_sequence_and_one_wins_each_position(opened: StoreUnderTest) -> None:
    create(opened, "a")
    taken: list[int] = []

    def run(caller: Caller) -> None:
        arena = StoreUnderTest(store=opened.store, devices=(), arena=memoryview(bytearray(MIB)))
        for position in range(48):
            outcome = append(arena, {"a": range(position, position + 1)}, caller=caller)[0]
            if outcome.reason is Reason.UNSPECIFIED:
                taken.append(position)

    threads = [threading.Thread(target=run, args=(caller,)) for caller in (ME, OTHER)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    length = opened.store.sequences.get(ME, "a").length_tokens
    assert sorted(taken) == list(range(length))
    assert length >= 1
    check_bytes(opened, length)


def test_a_flush_that_waits_for_a_device_holds_nobody_else_up(tmp_path: Path) -> None:
    """Fails (hangs) when the recorder waits for a sequence that is in use."""
    devices = Wrapping(GatedDevice)
    with open_store(tmp_path, dram_bytes=4 * MIB, wrap=devices) as opened:
        create(opened, "slow", "quick")
        stripe = int.from_bytes(ROWS.keys(TOKENS[:16])[0][:4], "little")
        append(opened, {"slow": range(32), "quick": range(17)})
        flusher = threading.Thread(target=flush, args=(opened, "slow", 32))
        flusher.start()
        slow = opened.store.sequences._resolve(ME, "slow")
        lock = opened.store._sequence_parts.opened._sequences[slow].lock
        wait_until(lock.locked)
        # The first chunk of both is heard of for the one in use as well.
        devices[stripe % 2].gate.set()
        assert durable(opened, "quick", 1).durable_tokens == 16
        assert flusher.is_alive()
        devices[(stripe + 1) % 2].gate.set()
        flusher.join()
        assert opened.store.sequences.get(ME, "slow").durable_tokens == 32


def test_a_record_that_could_not_be_stored_is_made_up_for_later(
    opened: StoreUnderTest, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    create(opened, "a")

    def refuse(_: object) -> None:
        raise SequenceStorageError(Reason.STORE_FULL)

    with monkeypatch.context() as patch:
        patch.setattr(opened.store._sequence_parts.opened.table, "store", refuse)
        append(opened, {"a": range(17)})
        wait_until(lambda: "not up to date" in caplog.text)
        state = opened.store.sequences.get(ME, "a")
        assert (state.length_tokens, state.durable_tokens) == (17, 0)
        with pytest.raises(SequenceStorageError, match="STORE_FULL"):
            flush(opened, "a", 17)
    append(opened, {"a": range(17, 33)})
    assert durable(opened, "a", 2).durable_tokens == 32


def test_an_ephemeral_sequence_does_not_wait_for_the_records_of_others(
    opened: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: what the index refused kept those back that are never in it."""
    create(opened, "named")
    create(opened, "ephemeral", is_ephemeral=True)
    parts = opened.store._sequence_parts

    def refuse(_: object) -> None:
        raise SequenceStorageError(Reason.STORE_FULL)

    with monkeypatch.context() as patch:
        recorder = parts.append_path._recorder
        patch.setattr(recorder, "_settle", lambda _: None)
        append(opened, {"named": range(17), "ephemeral": range(17)})
        patch.setattr(parts.opened.table, "store", refuse)
        identities = [parts.opened.resolve(NAMESPACE, 1, name) for name in ("named", "ephemeral")]
        with parts.opened.held(identities) as held, pytest.raises(SequenceStorageError):
            recorder._store([(one, one.known.advanced(())) for one in held.values()])
        assert opened.store.sequences.get(ME, "ephemeral").durable_tokens == 16
        assert opened.store.sequences.get(ME, "named").durable_tokens == 0
