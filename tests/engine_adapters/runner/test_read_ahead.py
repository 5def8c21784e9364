"""When which read starts: the devices are kept busy, and the first layers come first."""

import pytest

from engine_adapters.restore import LayerSchedule, Source
from engine_adapters.runner.model import Model
from engine_adapters.runner.read_ahead import ReadAhead
from engine_adapters.runner.state_format import StateFormat
from kvstored_client import Order
from tests.engine_adapters.runner.conftest import CHUNK_TOKENS
from tests.engine_adapters.runner.fake_client import FakeClient, FakeStore
from tests.engine_adapters.runner.fake_read import FakeRead


class SlowClient(FakeClient):
    """Reads settle layer by layer, as far as a test says: ``settled[n]`` of the nth read."""

    def __init__(self, arena_bytes: int = 1 << 20) -> None:
        super().__init__(FakeStore(), arena_bytes=arena_bytes)
        self.settled: list[int] = []

    def read(self, *arguments: object, **options: object) -> FakeRead:
        read = super().read(*arguments, **options)  # type: ignore[arg-type]
        number = len(self.settled)
        self.settled.append(0)
        read.is_layer_settled = lambda layer: layer < self.settled[number]  # type: ignore[method-assign]
        return read


def reads_of(
    client: SlowClient,
    model: Model,
    *,
    order: Order = Order.LAYER_FIRST,
    remaining_s: float = 1.0,
    chunk_count: int = 9,
) -> ReadAhead:
    """Spans of 3 chunks of 3 layers: hidden states of two, keys and values of the last."""
    schedule = LayerSchedule.of((Source.HIDDEN, 2), (Source.KV, 1))
    return ReadAhead(
        client,
        StateFormat.of_model(model, "ahead", schedule=schedule, chunk_tokens=CHUNK_TOKENS),
        [bytes([number]) * 32 for number in range(chunk_count)],
        order=order,
        span_chunks=3,
        remaining_s=lambda: remaining_s,
    )


def test_one_read_after_the_other(model: Model) -> None:
    client = SlowClient()
    ahead = reads_of(client, model)
    span = ahead.first()
    assert span is not None
    assert client.read_layers == [(0, 2)]
    ahead.advance()
    assert client.read_layers == [(0, 2)]
    client.settled[0] = 1
    ahead.advance()
    assert client.read_layers == [(0, 2), (2, 1)]
    client.settled[1] = 1
    ahead.advance()
    # The next span; a third one has to wait until the first is used.
    assert client.read_layers == [(0, 2), (2, 1), (0, 2)]
    client.settled[2] = 2
    ahead.advance()
    client.settled[3] = 1
    ahead.advance()
    assert client.read_layers == [(0, 2), (2, 1)] * 2
    ahead.pop()
    following = ahead.first()
    assert following is not None
    assert following.first_chunk == 3
    assert client.read_layers == [(0, 2), (2, 1)] * 2 + [(0, 2)]
    ahead.close()
    assert client.regions_in_use == client.reads_in_flight == 0


def test_other_orders_need_not_wait(model: Model) -> None:
    client = SlowClient()
    ahead = reads_of(client, model, order=Order.TAIL_FIRST)
    ahead.first()
    assert client.read_layers == [(0, 2), (2, 1)] * 2
    ahead.close()


def test_a_layer_whose_read_never_started_is_not_there(model: Model) -> None:
    client = SlowClient()
    ahead = reads_of(client, model)
    span = ahead.first()
    assert span is not None
    assert span.wait_layer(2, 1.0) == 0
    ahead.close()


def test_no_read_without_time(model: Model) -> None:
    client = SlowClient()
    assert reads_of(client, model, remaining_s=0.0).first() is None
    assert client.regions_in_use == 0


@pytest.mark.parametrize(("arena_spans", "sizes"), [(1, [3]), (0.4, [1])])
def test_a_small_arena_holds_smaller_spans(
    arena_spans: float, sizes: list[int], model: Model
) -> None:
    probe = reads_of(SlowClient(), model)
    arena_bytes = int(probe._format.span_bytes(3) * arena_spans)
    client = SlowClient(arena_bytes)
    ahead = reads_of(client, model)
    ahead.first()
    assert client.read_sizes == sizes
    ahead.close()
    assert client.regions_in_use == 0


def test_no_more_spans_than_chunks(model: Model) -> None:
    client = SlowClient()
    ahead = reads_of(client, model, chunk_count=4, order=Order.HEAD_FIRST)
    sizes = []
    while (span := ahead.first()) is not None:
        sizes.append(span.chunk_count)
        ahead.pop()
    assert sizes == [3, 1]
