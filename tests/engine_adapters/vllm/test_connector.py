"""Which steps of a worker the connector passes by."""

from typing import Any

import pytest

pytest.importorskip("vllm", reason="needs vLLM: make test-vllm")

from engine_adapters.vllm.connector import KvstoredConnector
from engine_adapters.vllm.messages.orders import LoadEnd, StepOrders, WorkerReport
from engine_adapters.vllm.metadata import OrdersMetadata

QUIET = OrdersMetadata(StepOrders(fingerprint="m", asks_nothing=True))
IDLE = OrdersMetadata(StepOrders(fingerprint="m", is_idle=True))


class NotingSide:
    """A worker's side that notes what it is asked, and has something to say to all of it."""

    def __init__(self) -> None:
        self.is_settled = True
        self.asked: list[str] = []

    def begin_step(self, orders: StepOrders) -> None:
        self.asked.append("begin")

    def end_forward(self, orders: StepOrders) -> None:
        self.asked.append("end")

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
