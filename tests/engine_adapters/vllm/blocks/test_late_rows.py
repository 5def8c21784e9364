"""Rows that come late are used in the order in which they were asked for."""

import threading

import pytest
import torch

from engine_adapters.vllm.blocks.block_rows import BlockRows
from engine_adapters.vllm.blocks.late_rows import LateRows
from tests.support.waiting import PATIENCE_S

BLOCK_TOKENS = 2


def late_rows() -> LateRows:
    return LateRows(BlockRows(capacity=4, block_tokens=BLOCK_TOKENS))


def block_of(value: float) -> torch.Tensor:
    return torch.full((1, BLOCK_TOKENS, 3), value)


def taken(late: LateRows, block_id: int) -> list[float] | None:
    """The first number of a block, None where it is not complete."""
    answers: list[list[torch.Tensor] | None] = []
    is_done = threading.Event()

    def take(rows: BlockRows) -> None:
        answers.append(rows.take([block_id]))
        is_done.set()

    late.use(take)
    assert is_done.wait(PATIENCE_S)
    (answer,) = answers
    return None if answer is None else [float(rows.flatten()[0]) for rows in answer]


def test_everything_is_done_in_order_though_the_first_is_late() -> None:
    late, has_come = late_rows(), threading.Event()

    def add(rows: BlockRows) -> None:
        assert has_come.wait(PATIENCE_S)
        rows.add(block_of(1.0), [0, 1])
        rows.add(block_of(2.0), [2, 3])

    late.use(add)
    # A load fills the first block with something else.
    late.forget([0])
    threading.Timer(0.02, has_come.set).start()
    assert taken(late, 0) is None
    assert taken(late, 1) == [2.0]
    late.close()


def test_what_fails_costs_all_rows_and_no_thread(caplog: pytest.LogCaptureFixture) -> None:
    """A row that was missed could be another token's: nothing older may be stored."""
    late = late_rows()
    late.use(lambda rows: rows.add(block_of(1.0), [0, 1]))

    def fail(rows: BlockRows) -> None:
        raise RuntimeError("no copy")

    late.use(fail)
    assert taken(late, 0) is None
    late.use(lambda rows: rows.add(block_of(3.0), [0, 1]))
    assert taken(late, 0) == [3.0]
    assert "forgotten" in caplog.text
    late.close()


def test_its_thread_ends_after_what_it_was_asked_for() -> None:
    late, done = late_rows(), threading.Event()
    late.use(lambda _: done.set())
    late.close()
    assert done.wait(PATIENCE_S)
