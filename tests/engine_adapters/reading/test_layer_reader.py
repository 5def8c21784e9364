"""Layers of a whole history come one after the other, and open its gates."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from engine_adapters.reading.byte_format import ByteFormat
from engine_adapters.reading.layer_reader import LayerReader
from engine_adapters.reading.piece import pieces_of
from engine_adapters.reading.read_options import ReadOptions
from engine_adapters.reading.span import Span
from engine_adapters.reading.span_reader import SpanReader
from engine_adapters.reading.stored_pieces import known
from kvstored_client import LayerState, Order, Rotary, StateKind, StateLayout
from kvstored_client.testing import Delivery, MemoryClient, MemoryStore, StoredChunk
from tests.engine_adapters.runner.memory import check_released, make_store

LAYERS = 4
PIECES = 6
LAYOUT = StateLayout(
    model="layers",
    dtype="uint8",
    layers=(LayerState(StateKind.KV, 16),) * LAYERS,
    chunk_tokens=8,
    rotary=Rotary.ROTATED,
)
KEYS = [bytes([number]) * 32 for number in range(PIECES)]


def value_of(piece: int, layer: int) -> int:
    return 10 * piece + layer


class Lab:
    """A reader that its caller drives, of a store whose reads bring what a test says."""

    def __init__(
        self, *, span_chunks: int, room_bytes: int = 1 << 20, stored: Sequence[bytes] = KEYS
    ) -> None:
        chunks = {
            key: StoredChunk(
                layout_id=LAYOUT.layout_id,
                slices=tuple(
                    bytes([value_of(key[0], layer)]) * LAYOUT.slice_bytes(layer)
                    for layer in range(LAYERS)
                ),
                token_count=LAYOUT.chunk_tokens,
            )
            for key in stored
        }
        self.store: MemoryStore = make_store(chunks)
        self.store.faults.delivery = Delivery.HELD
        self.taken: list[tuple[int, int]] = []
        self.reader = SpanReader(
            MemoryClient(self.store, room_bytes=room_bytes),
            ByteFormat(LAYOUT),
            known(pieces_of(KEYS, chunk_tokens=LAYOUT.chunk_tokens)),
            ReadOptions(order=Order.LAYER_FIRST, span_chunks=span_chunks, is_layer_wise=True),
            remaining_s=lambda: 60.0,
        )
        self.layers = LayerReader(self.reader, self._take, layer_count=LAYERS)

    @property
    def gate(self) -> Any:
        assert self.layers.gate is not None
        return self.layers.gate

    def deliver(self, layer: int) -> None:
        """One layer of all that was asked for of it."""
        for read in self.store.reads:
            if read.first_layer <= layer < read.first_layer + read.layer_count:
                read.deliver(layer=layer - read.first_layer)

    def close(self) -> None:
        self.reader.close()
        check_released(self.store)

    def _take(self, span: Span, layer: int, chunks: range) -> None:
        states = span.states(layer, len(chunks), first_chunk=chunks.start)
        for index, chunk in enumerate(chunks):
            piece = span.first_chunk + chunk
            assert torch.all(states[index] == value_of(piece, layer))
            self.taken.append((layer, piece))


@pytest.fixture(params=[PIECES, 3, 2, 1], ids="arena of {} pieces".format)
def lab(request: pytest.FixtureRequest) -> Lab:
    return Lab(span_chunks=request.param)


def test_a_layer_of_all_pieces_comes_before_the_next_one(lab: Lab) -> None:
    for layer in range(LAYERS):
        for _ in range(PIECES):
            lab.deliver(layer)
            lab.layers.take(1000)
        assert lab.gate.open_layers == layer + 1
    assert lab.taken == [(layer, piece) for layer in range(LAYERS) for piece in range(PIECES)]
    assert lab.gate.stop_token == PIECES * LAYOUT.chunk_tokens
    lab.close()


def test_no_more_is_taken_than_there_is_room_for(lab: Lab) -> None:
    while lab.layers.gate is None or not lab.gate.is_done:
        for layer in range(LAYERS):
            lab.deliver(layer)
        before = len(lab.taken)
        taken = lab.layers.take(2)
        assert taken == len(lab.taken) - before <= 2
    assert lab.taken == [(layer, piece) for layer in range(LAYERS) for piece in range(PIECES)]
    lab.close()


@pytest.mark.parametrize("lost_layer", range(LAYERS))
def test_a_lost_piece_shortens_the_history(lab: Lab, lost_layer: int) -> None:
    lab.store.faults.lost_slices = {(KEYS[4], lost_layer)}
    while lab.layers.gate is None or not lab.gate.is_done:
        for layer in range(LAYERS):
            lab.deliver(layer)
        lab.layers.take(1000)
    assert lab.gate.kept == 4
    assert {(layer, piece) for layer in range(LAYERS) for piece in range(4)} <= set(lab.taken)
    lab.close()


@pytest.mark.parametrize("at_layer", range(LAYERS))
def test_a_store_that_dies_keeps_nothing_that_misses_a_layer(lab: Lab, at_layer: int) -> None:
    for layer in range(at_layer):
        for _ in range(PIECES):
            lab.deliver(layer)
            lab.layers.take(1000)
    lab.layers.take(1000)
    lab.store.kill()
    for _ in range(PIECES):
        lab.layers.take(1000)
    assert lab.gate.is_done
    assert lab.gate.kept == 0
    lab.reader.close()


def test_nothing_comes_where_the_arena_has_no_room() -> None:
    lab = Lab(span_chunks=PIECES, room_bytes=4096)
    lab.layers.take(1000)
    lab.layers.take(1000)
    assert lab.gate.is_done
    assert lab.gate.kept == 0
    lab.close()


def test_what_is_not_waited_for_is_lost() -> None:
    lab = Lab(span_chunks=PIECES)
    lab.layers.take(1000)
    lab.deliver(0)
    lab.layers.take(1000)
    assert lab.gate.open_layers == 1
    lab.layers.end()
    assert lab.gate.is_done
    assert lab.gate.kept == 0
    lab.close()


def test_bands_of_an_arena_that_holds_less_than_a_history() -> None:
    """Two spans of the bytes of three whole pieces: two layers of all six pieces each."""
    lab = Lab(span_chunks=3)
    lab.layers.take(1000)
    assert [(each.first_layer, each.layer_count) for each in lab.store.reads] == [(0, 2)]
    lab.deliver(0)
    lab.deliver(1)
    lab.layers.take(1000)
    lab.reader.advance()
    assert [(each.first_layer, each.layer_count) for each in lab.store.reads[1:]] == [(2, 2)]
    lab.close()
