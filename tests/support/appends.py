"""Appends to a whole store in this process, and what they must have left there."""

import time

from kvstored.store.read.placement import Placement
from kvstored.store.read.plan import Order
from kvstored.store.sequences.sequence_state import SequenceState
from kvstored.tiers.chunks.requests import AppendItem, AppendOutcome, AppendRequest, ReadRequest
from kvstored.tiers.sequences.sequences import Caller
from kvstored_contract.board import SliceState
from kvstored_contract.layout import LayerState, StateKind, StateLayout
from tests.support.rows import MIXED, Rows
from tests.support.stores import (
    MIB,
    NAMESPACE,
    StoreUnderTest,
    new_board,
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
    return opened.store.append_path.append(
        AppendRequest(
            namespace_id=caller.namespace_id,
            session_id=caller.session_id,
            layout=rows.layout,
            row_count=len(step),
            source=opened.arena[: len(snapshot)],
            items=tuple(items),
            deadline=caller.deadline,
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
    return opened.store._dram.open_frames.byte_count


def slices_of(opened: StoreUnderTest, chunk_key: bytes, token_count: int) -> list[bytes]:
    """A chunk read back."""
    board = new_board(1, MIXED.layer_count)
    stride = MIXED.layer_stride
    opened.store.read_path.read(
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
