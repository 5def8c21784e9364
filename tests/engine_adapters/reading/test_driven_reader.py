"""When which read starts: the devices are kept busy, and the first layers come first.

In a reader that its caller drives.
"""

from typing import Any

import pytest

from engine_adapters.reading.piece import pieces_of
from engine_adapters.reading.read_options import ReadOptions
from engine_adapters.reading.section import Section
from engine_adapters.reading.section_reads import AT_ONCE
from engine_adapters.reading.span_reader import SpanReader
from engine_adapters.reading.stored_pieces import known
from engine_adapters.restore import LayerSchedule, Source
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Order
from kvstored_client.testing import Delivery, MemoryClient, StoredChunk, Wait
from tests.engine_adapters.runner.conftest import CHUNK_TOKENS
from tests.engine_adapters.runner.memory import check_released, make_store


def slow_client(room_bytes: int = 1 << 20) -> MemoryClient:
    """Reads settle when a test delivers them."""
    store = make_store()
    store.faults.delivery = Delivery.HELD
    return MemoryClient(store, room_bytes=room_bytes)


def read_layers(client: MemoryClient) -> list[tuple[int, int]]:
    """First layer and number of layers of each read."""
    return [(read.first_layer, read.layer_count) for read in client.store.reads]


def format_of(model: Model) -> StateFormat:
    """Hidden states of two layers, keys and values of the last."""
    schedule = LayerSchedule.of((Source.HIDDEN, 2), (Source.KV, 1))
    return StateFormat.of_model(model, "ahead", schedule=schedule, chunk_tokens=CHUNK_TOKENS)


def reads_of(
    client: MemoryClient,
    model: Model,
    *,
    order: Order = Order.LAYER_FIRST,
    remaining_s: float = 1.0,
    chunk_count: int = 9,
    **options: Any,
) -> SpanReader:
    """Spans of 3 chunks."""
    keys = [bytes([number]) * 32 for number in range(chunk_count)]
    return SpanReader(
        client,
        format_of(model),
        known(pieces_of(keys, chunk_tokens=CHUNK_TOKENS)),
        ReadOptions(order=order, **{"span_chunks": 3, **options}),
        remaining_s=lambda: remaining_s,
    )


def test_one_read_after_the_other(model: Model) -> None:
    client = slow_client()
    reader = reads_of(client, model)
    span = reader.first()
    assert span is not None
    assert read_layers(client) == [(0, 2)]
    reader.advance()
    assert read_layers(client) == [(0, 2)]
    client.store.reads[0].deliver(layer=0)
    reader.advance()
    assert read_layers(client) == [(0, 2), (2, 1)]
    client.store.reads[1].deliver(layer=0)
    reader.advance()
    # The next span; a third one has to wait until the first is used.
    assert read_layers(client) == [(0, 2), (2, 1), (0, 2)]
    client.store.reads[2].deliver()
    reader.advance()
    client.store.reads[3].deliver(layer=0)
    reader.advance()
    assert read_layers(client) == [(0, 2), (2, 1)] * 2
    reader.give_back(span)
    following = reader.first()
    assert following is not None
    assert following.first_chunk == 3
    assert read_layers(client) == [(0, 2), (2, 1)] * 2 + [(0, 2)]
    reader.close()
    check_released(client.store)


def test_a_span_that_was_given_up_after_its_last_read_was_half_there(model: Model) -> None:
    """Bug: its chunks counted as lost, so that first layers were not computed, and as arrived."""
    client = slow_client()
    reader = reads_of(client, model)
    span = reader.first()
    assert span is not None
    span.reads.start(1000)
    assert span.reads.are_all_started
    span.reads.give_up()
    assert not any(span.is_lost(chunk) for chunk in range(span.chunk_count))
    assert not span.is_lost(0)
    reader.close()
    check_released(client.store)


def test_the_end_of_a_span_is_waited_for_read_after_read(model: Model) -> None:
    client = slow_client()
    waited: list[int] = []

    def end(wait: Wait) -> bool:
        waited.append(client.store.reads.index(wait.read))
        wait.read.deliver()
        return True

    client.store.faults.on_wait = end
    reader = reads_of(client, model)
    span = reader.first()
    assert span is not None
    span.reads.start(1000)
    for _ in range(3):
        span.wait_end(1.0)
    assert waited == [0, 1]
    assert span.is_finished
    reader.close()
    check_released(client.store)


def test_bytes_count_as_they_come(model: Model) -> None:
    """Bug: a look at a restoration of one span saw no bytes until all had come."""
    client = slow_client()
    reader = reads_of(client, model, chunk_count=3)
    layout = format_of(model).layout
    for number in range(3):
        client.store.chunks[bytes([number]) * 32] = StoredChunk(
            layout_id=layout.layout_id,
            slices=tuple(bytes(layout.slice_bytes(layer)) for layer in range(layout.layer_count)),
            token_count=layout.chunk_tokens,
        )
    assert reader.read_bytes() == (0, 0)
    span = reader.first()
    assert span is not None
    client.store.reads[0].deliver(layer=0)
    device_bytes, dram_bytes = reader.read_bytes()
    assert device_bytes > 0
    assert dram_bytes == 0
    client.store.reads[0].deliver()
    reader.give_back(span)
    assert reader.read_bytes()[0] > device_bytes
    reader.close()
    check_released(client.store)


def test_reads_of_chunks_wait_until_the_last_chunks_are_coming(model: Model) -> None:
    client = slow_client()
    reader = reads_of(client, model, order=Order.TAIL_FIRST)
    reader.first()
    assert read_layers(client) == [(0, 2)]
    client.store.reads[0].deliver(chunk=2)
    reader.advance()
    assert read_layers(client) == [(0, 2), (2, 1)]
    reader.close()


@pytest.mark.parametrize("order", [Order.HEAD_FIRST, Order.TAIL_FIRST])
def test_how_early_the_next_read_begins_may_change_while_one_runs(
    model: Model, order: Order
) -> None:
    client = slow_client()
    ahead = 0
    reader = reads_of(
        client,
        model,
        order=order,
        chunks_ahead=lambda: ahead,
        sections=[Section(first_layer=0, layer_count=3, slice_stride=4096)],
    )
    reader.first()
    chunks = range(3) if order is Order.HEAD_FIRST else range(2, -1, -1)
    client.store.reads[0].deliver(chunk=chunks[0])
    client.store.reads[0].deliver(chunk=chunks[1])
    reader.advance()
    assert len(client.store.reads) == 1
    ahead = 1
    reader.advance()
    assert len(client.store.reads) == 2
    client.store.reads[1].deliver()
    reader.advance()
    assert len(client.store.reads) == 2, "two spans are in flight"
    reader.close()
    check_released(client.store)


def test_a_read_may_share_the_devices_with_all_of_the_next_one(model: Model) -> None:
    client = slow_client()
    reader = reads_of(
        client,
        model,
        order=Order.HEAD_FIRST,
        chunks_ahead=lambda: AT_ONCE,
        sections=[Section(first_layer=0, layer_count=3, slice_stride=4096)],
    )
    reader.first()
    assert len(client.store.reads) == 2
    reader.close()
    check_released(client.store)


def test_a_layer_whose_read_never_started_is_not_there(model: Model) -> None:
    client = slow_client()
    reader = reads_of(client, model)
    span = reader.first()
    assert span is not None
    assert span.wait_layer(2, 1.0) == 0
    reader.close()


def test_no_read_without_time(model: Model) -> None:
    client = slow_client()
    assert reads_of(client, model, remaining_s=0.0).first() is None
    check_released(client.store)


@pytest.mark.parametrize(("arena_spans", "sizes"), [(1, [3]), (0.4, [1])])
def test_a_small_arena_holds_smaller_spans(
    arena_spans: float, sizes: list[int], model: Model
) -> None:
    arena_bytes = int(format_of(model).span_bytes(3) * arena_spans)
    client = slow_client(arena_bytes)
    reader = reads_of(client, model)
    reader.first()
    assert [len(read.keys) for read in client.store.reads] == sizes
    reader.close()
    check_released(client.store)


def test_no_more_spans_than_chunks(model: Model) -> None:
    client = slow_client()
    reader = reads_of(client, model, chunk_count=4, order=Order.HEAD_FIRST)
    sizes = []
    while (span := reader.first()) is not None:
        sizes.append(span.chunk_count)
        reader.give_back(span)
    assert sizes == [3, 1]


def test_what_was_asked_for_may_come_after_the_time_is_up(model: Model) -> None:
    client = slow_client()
    reader = reads_of(client, model, order=Order.HEAD_FIRST)
    span = reader.first()
    assert span is not None
    client.store.reads[0].deliver(chunk=0)
    reader.advance()
    client.store.reads[1].deliver(chunk=0)
    reader._remaining_s = lambda: 0.0
    reader.advance()
    assert reader.is_ended
    assert not reader.is_over
    assert len(client.store.reads) == 2
    # The store has none of it, as it said of the first one.
    assert [span.is_lost(chunk) for chunk in range(3)] == [True, False, False]
    reader.close()
    check_released(client.store)


def test_what_was_not_asked_for_in_time_is_lost(model: Model) -> None:
    client = slow_client()
    reader = reads_of(client, model)
    span = reader.first()
    assert span is not None
    client.store.reads[0].deliver()
    reader._remaining_s = lambda: 0.0
    reader.advance()
    assert reader.is_ended
    assert span.is_layer_settled(2)
    reader.close()
    check_released(client.store)


@pytest.mark.parametrize("order", [Order.HEAD_FIRST, Order.TAIL_FIRST])
def test_a_short_span_shared_the_devices_with_the_next_one(model: Model, order: Order) -> None:
    """Bug: with as many chunks as a reader may lack, the next read began with it at once."""
    client = slow_client()
    reader = reads_of(
        client,
        model,
        order=order,
        span_chunks=2,
        sections=[Section(first_layer=0, layer_count=3, slice_stride=4096)],
    )
    reader.first()
    assert len(client.store.reads) == 1
    client.store.reads[0].deliver(chunk=0 if order is Order.HEAD_FIRST else 1)
    reader.advance()
    assert len(client.store.reads) == 2
    reader.close()
    check_released(client.store)
