"""The chunks of a save, one by one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from engine_adapters.vllm.identity.chunk_keys import rank_key
from engine_adapters.vllm.messages.orders import SaveOrder
from kvstored_client import NewChunk, StateKind, StateLayout
from kvstored_contract.limits import NOTES_BYTES_PER_CALL_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class SavePiece:
    """Chunk ``index`` of its request, which lies in ``block_ids``."""

    index: int
    chunk: NewChunk
    block_ids: tuple[int, ...]


def pieces_of(order: SaveOrder, layout: StateLayout) -> list[SavePiece]:
    """The chunks of an order as one rank stores them."""
    blocks = len(order.block_ids) // len(order.chain_keys)
    parents = (order.parent_key, *order.chain_keys)
    return [
        SavePiece(
            index=order.first_chunk + index,
            chunk=NewChunk(
                key=rank_key(key, layout.layout_id),
                parent_key=rank_key(parent, layout.layout_id) if parent else b"",
                token_count=layout.chunk_tokens,
                stripe=order.first_chunk + index,
                note=order.notes[index] if order.notes else b"",
            ),
            block_ids=order.block_ids[index * blocks : (index + 1) * blocks],
        )
        for index, (key, parent) in enumerate(zip(order.chain_keys, parents, strict=False))
    ]


def layers_of(layout: StateLayout, kind: StateKind) -> list[int]:
    """Which layers have a kind of state, in their order."""
    return [layer for layer, state in enumerate(layout.layers) if state.kind is kind]


def with_notes_that_fit(chunks: Sequence[NewChunk]) -> tuple[NewChunk, ...]:
    """The chunks of one put, those in front with their notes: as many as one call takes."""
    left_bytes, fitting = NOTES_BYTES_PER_CALL_MAX, []
    for chunk in chunks:
        left_bytes -= len(chunk.note)
        fitting.append(chunk if left_bytes >= 0 else replace(chunk, note=b""))
    return tuple(fitting)


def runs_of(places: Sequence[int]) -> Iterator[range]:
    """Places that follow each other, together: [0, 1, 3] are 0 to 1, and 3."""
    first = 0
    for stop in range(1, len(places) + 1):
        if stop == len(places) or places[stop] != places[stop - 1] + 1:
            yield range(places[first], places[stop - 1] + 1)
            first = stop
