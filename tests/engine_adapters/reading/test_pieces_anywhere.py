"""Pieces at any position, with gaps between them, and with fewer tokens than complete chunks."""

import pytest
import torch
from torch import Tensor

from engine_adapters.reading.layer_reader import LayerReader
from engine_adapters.reading.piece import Piece
from engine_adapters.reading.read_options import ReadOptions
from engine_adapters.reading.span import Span
from engine_adapters.reading.span_reader import SpanReader
from engine_adapters.reading.stored_pieces import known
from engine_adapters.restore import LayerSchedule, Source
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.rotary import rotate
from engine_adapters.runner.restore.layer_loader import LayerLoader
from engine_adapters.runner.restore.target import Target
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import RAW, Order, SliceState
from kvstored_client.testing import MemoryClient, StoredChunk
from tests.engine_adapters.runner.memory import check_released, make_store
from tests.support.waiting import wait_until

CHUNK_TOKENS = 8
PLACES = ((0, 8), (8, 8), (16, 3), (19, 8), (40, 8), (48, 1), (60, 5))
"""Position and tokens of each piece: the sequence has gaps from 27 to 40 and from 49 to 60."""
SLOTS = 65
PIECES = tuple(Piece(bytes([n]) * 32, first, count) for n, (first, count) in enumerate(PLACES))


class Store:
    """States that nobody computed, of keys and values in all layers."""

    def __init__(self, model: Model, codec: str) -> None:
        layers = model.config.layer_count
        self.model = model
        self.format = StateFormat.of_model(
            model,
            "anywhere",
            schedule=LayerSchedule.of((Source.KV, layers)),
            chunk_tokens=CHUNK_TOKENS,
        ).encoded(codec)
        generator = torch.Generator().manual_seed(7)
        self.states = [
            [
                torch.randn(self.format.slice_shape(layer, piece.token_count), generator=generator)
                for layer in range(layers)
            ]
            for piece in PIECES
        ]
        chunks = {
            piece.key: StoredChunk(
                layout_id=self.format.layout.layout_id,
                slices=tuple(map(self.bytes_of, range(layers), states)),
                token_count=piece.token_count,
            )
            for piece, states in zip(PIECES, self.states, strict=True)
        }
        self.client = MemoryClient(make_store(chunks))

    def bytes_of(self, layer: int, states: Tensor) -> bytes:
        codec = self.format.codec
        return states.numpy().tobytes() if codec is None else codec.codecs[layer].encode(states)

    def reader(
        self, pieces: tuple[Piece, ...], *, order: Order, is_layer_wise: bool = False
    ) -> SpanReader:
        return SpanReader(
            self.client,
            self.format,
            known(pieces),
            ReadOptions(order=order, span_chunks=3, is_layer_wise=is_layer_wise),
            remaining_s=lambda: 60.0,
        )

    def close(self, reader: SpanReader) -> None:
        reader.close()
        check_released(self.client.store)
        self.client.close()


@pytest.fixture(params=[RAW, "zstd"])
def store(request: pytest.FixtureRequest, model: Model) -> Store:
    return Store(model, request.param)


def wait_for(reader: SpanReader, span: Span) -> None:
    while not span.reads.are_all_started:
        reader.advance()
    for chunk in range(span.chunk_count):
        span.wait(chunk, timeout_s=60.0)
        assert span.state(chunk) is SliceState.RESIDENT


@pytest.mark.parametrize("order", Order)
def test_each_piece_is_what_was_stored(store: Store, order: Order) -> None:
    # Neither in the order of their positions, nor all that are stored.
    chosen = (4, 2, 6, 0, 5)
    reader = store.reader(tuple(PIECES[number] for number in chosen), order=order)
    found: list[int] = []
    while (span := reader.first()) is not None:
        wait_for(reader, span)
        for chunk, piece in enumerate(span.pieces):
            number = PIECES.index(piece)
            for layer in span.layers:
                (states,) = span.states(layer, 1, first_chunk=chunk)
                assert torch.equal(states, store.states[number][layer])
            found.append(number)
        if store.format.codec is None:
            assert sum(span.read_bytes()) == span.payload_bytes
        reader.give_back(span)
    assert found == list(chosen)
    store.close(reader)


def test_pieces_go_to_their_positions_and_gaps_stay_as_they_are(store: Store) -> None:
    model = store.model
    cache = model.make_cache(SLOTS + 2)
    cache.keys.fill_(9.0)
    cache.values.fill_(9.0)
    target = Target(token_ids=(), cache=cache, first_slot=2)
    loader = LayerLoader(model, store.format)
    reader = store.reader(PIECES, order=Order.LAYER_FIRST, is_layer_wise=True)
    layers = LayerReader(
        reader,
        lambda span, layer, chunks: loader.load_pieces(span, layer, chunks, target),
        layer_count=model.config.layer_count,
    )

    def is_done() -> bool:
        layers.take(100)
        return layers.gate is not None and layers.gate.is_done

    wait_until(is_done)
    assert layers.gate is not None
    assert layers.gate.stop_token == SLOTS
    assert model.rotary is not None
    is_stored = torch.zeros(SLOTS + 2, dtype=torch.bool)
    for piece, states in zip(PIECES, store.states, strict=True):
        slots = slice(2 + piece.first_position, 2 + piece.stop_position)
        is_stored[slots] = True
        angles = model.rotary.at(torch.arange(piece.first_position, piece.stop_position))
        for layer, each in enumerate(states):
            assert torch.equal(cache.values[layer, slots], each[1])
            assert (cache.keys[layer, slots] - rotate(each[0], angles)).abs().max() < 1e-5
    assert (cache.values[:, ~is_stored] == 9.0).all()
    assert (cache.keys[:, ~is_stored] == 9.0).all()
    store.close(reader)


def test_a_lost_piece_ends_the_history_at_its_gap(store: Store) -> None:
    store.client.store.faults.lost_slices = {(PIECES[4].key, 1)}
    reader = store.reader(PIECES, order=Order.LAYER_FIRST, is_layer_wise=True)
    layers = LayerReader(reader, lambda *_: None, layer_count=store.model.config.layer_count)

    def is_done() -> bool:
        layers.take(100)
        return layers.gate is not None and layers.gate.is_done

    wait_until(is_done)
    assert layers.gate is not None
    assert layers.gate.stop_token == PIECES[3].stop_position
    store.close(reader)
