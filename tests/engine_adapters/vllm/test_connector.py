"""Which steps of a worker the connector passes by."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("vllm", reason="needs vLLM: make test-vllm")

from engine_adapters.vllm.connector import KvstoredConnector
from engine_adapters.vllm.messages.orders import LoadEnd, StepOrders, WorkerReport
from engine_adapters.vllm.metadata import OrdersMetadata
from engine_adapters.vllm.worker_side.forward_watch import ForwardWatch

QUIET = OrdersMetadata(StepOrders(fingerprint="m", asks_nothing=True))
IDLE = OrdersMetadata(StepOrders(fingerprint="m", is_idle=True))


class NotingSide:
    """A worker's side that notes what it is asked, and has something to say to all of it."""

    def __init__(self) -> None:
        self.is_settled = True
        self.asked: list[str] = []

    def begin_step(self, orders: StepOrders) -> None:
        self.asked.append("begin")

    def end_forward(self, orders: StepOrders, *, has_failed: bool) -> None:
        self.asked.append("fail" if has_failed else "end")

    def take_finished(self, *, is_idle: bool) -> set[str]:
        return {"a"}

    def take_bad_blocks(self) -> set[int]:
        return {7}

    def take_counts(self) -> dict[str, float]:
        return {"saved_tokens": 8}

    def take_report(self) -> WorkerReport:
        return WorkerReport(ends=(LoadEnd(load_id=1, loaded_blocks=2),))


@pytest.fixture
def connector() -> Any:
    """In a worker, of which the rest needs an engine."""
    made: Any = object.__new__(KvstoredConnector)
    made.scheduler_side, made.worker_side, made._connector_metadata = None, NotingSide(), None
    made._forward, made._concerned = ForwardWatch(), None
    return made


def said(connector: Any, metadata: OrdersMetadata) -> list[bool]:
    """Whether each of the questions after a step has an answer."""
    connector.bind_connector_metadata(metadata)
    assert not connector.has_connector_metadata(), "no layer is announced"
    connector.wait_for_save()
    answers = (
        connector.get_finished(set())[1],
        connector.get_block_ids_with_load_errors(),
        connector.get_kv_connector_stats(),
        connector.build_connector_worker_meta(),
    )
    connector.clear_connector_metadata()
    return [bool(answer) for answer in answers]


def test_step_that_asks_nothing_passes_a_settled_worker_by(connector: Any) -> None:
    assert said(connector, QUIET) == [False] * 4
    assert connector.worker_side.asked == []


def test_worker_with_something_under_way_is_asked_in_every_step(connector: Any) -> None:
    connector.worker_side.is_settled = False
    assert said(connector, QUIET) == [True] * 4
    assert connector.worker_side.asked == ["begin", "end"]


def test_orders_reach_a_settled_worker(connector: Any) -> None:
    said(connector, QUIET)
    assert said(connector, IDLE) == [True] * 4
    assert connector.worker_side.asked == ["begin", "end"]
    assert said(connector, QUIET) == [False] * 4


def test_worker_that_is_off_has_nothing_to_say(connector: Any) -> None:
    connector.worker_side = None
    assert said(connector, IDLE) == [False] * 4


@contextmanager
def forward(connector: Any, metadata: OrdersMetadata) -> Iterator[None]:
    """As vLLM's V1 runner has a forward in it."""
    connector.bind_connector_metadata(metadata)
    try:
        yield
    finally:
        connector.wait_for_save()


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("metadata", [IDLE, QUIET])
def test_blocks_that_were_never_computed_were_saved(
    connector: Any, error: type[BaseException], metadata: OrdersMetadata
) -> None:
    """Bug: a signal in the middle of a forward, and what its blocks held was stored for good."""
    with pytest.raises(error), forward(connector, metadata):
        raise error
    assert connector.worker_side.asked[-1] == "fail"
    assert "end" not in connector.worker_side.asked


def test_an_engine_that_is_called_while_an_error_is_handled_saves(connector: Any) -> None:
    try:
        int("no number")
    except ValueError:
        with forward(connector, IDLE):
            pass
    assert connector.worker_side.asked == ["begin", "end"]


def test_a_worker_that_is_off_bears_a_forward_that_fails(connector: Any) -> None:
    connector.worker_side = None
    with pytest.raises(SystemExit), forward(connector, IDLE):
        raise SystemExit
