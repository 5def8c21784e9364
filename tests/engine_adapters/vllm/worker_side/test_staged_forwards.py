"""Layer inputs that come late from a device are those of their forward, block and token."""

import threading

import pytest
import torch
from torch import Tensor

from engine_adapters.device_copies.testing.delayed_copies import DelayedCopies
from engine_adapters.vllm.blocks.block_rows import BlockRows
from engine_adapters.vllm.blocks.late_rows import LateRows
from engine_adapters.vllm.blocks.staged_inputs import StagedInputs
from engine_adapters.vllm.worker_side import staged_forwards as staged_forwards_module
from engine_adapters.vllm.worker_side.staged_forwards import HOST_ROOMS, StagedForwards
from tests.support.waiting import PATIENCE_S, wait_until

LAYERS, WIDTH, BLOCK_TOKENS, ROWS_MAX = 3, 8, 4, 16
WANTED = (0, 2)
LATE_S = 0.01


class Lab:
    """A device, and a model that computes ``value * 10 + layer`` for every row of a forward."""

    def __init__(self, copies: DelayedCopies) -> None:
        self.staged = StagedInputs(
            LAYERS, ROWS_MAX, WIDTH, dtype=torch.float32, device=torch.device("cpu")
        )
        self.late = LateRows(BlockRows(capacity=8, block_tokens=BLOCK_TOKENS))
        self.forwards = StagedForwards(self.staged, WANTED, copies=copies, rows=self.late)

    def launch(self, value: float, row_count: int) -> None:
        for layer in range(LAYERS):
            rows = torch.full((row_count, WIDTH), value * 10 + layer)
            self.staged.write(layer, rows, None)

    def run(self, value: float, slots: list[int], *, padded: int = 0) -> None:
        """A step; the runner keeps slots in memory that the next step overwrites."""
        memory = torch.tensor([*slots, *[-1] * padded])
        self.forwards.begin()
        self.forwards.note_slots(memory)
        memory.fill_(999)
        self.launch(value, len(memory))
        self.forwards.end(has_failed=False, is_idle=False)

    def taken(self, block_id: int) -> list[Tensor] | None:
        answers: list[list[Tensor] | None] = []
        is_done = threading.Event()

        def take(rows: BlockRows) -> None:
            answers.append(rows.take([block_id]))
            is_done.set()

        self.late.use(take)
        assert is_done.wait(PATIENCE_S)
        return answers[0]

    def values(self, block_id: int) -> list[float] | None:
        """Of the tokens of a block, by what their forward computed; None: it is not complete."""
        blocks = self.taken(block_id)
        if blocks is None:
            return None
        (rows,) = blocks
        assert bool((rows[1] == rows[0] + 2).all()), "layers 0 and 2 are wanted"
        return [float(token[0]) / 10 for token in rows[0]]


@pytest.fixture(params=[0, 1 << 25])
def lab(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """Small forwards cross the bus in one copy, large ones layer by layer."""
    monkeypatch.setattr(staged_forwards_module, "STACKED_BYTES", request.param)
    return Lab(DelayedCopies(delay_s=LATE_S))


def test_rows_of_a_forward_were_overwritten_by_the_next_one(lab: Lab) -> None:
    """Bug that a missing wait would make: the copy of a step shows what the next one computed."""
    lab.run(1, [0, 1, 2, 3, 4, 5])
    lab.run(2, [6, 7], padded=3)
    lab.run(3, [8, 9, 10, 11])
    assert lab.values(0) == [1, 1, 1, 1]
    assert lab.values(1) == [1, 1, 2, 2]
    assert lab.values(2) == [3, 3, 3, 3]


def test_a_forward_for_nobody_overwrote_rows_on_their_way(lab: Lab) -> None:
    """Bug: another data-parallel rank wants it, and no connector hears of it."""
    lab.run(1, [0, 1, 2, 3])
    lab.forwards.hold()
    lab.launch(9, 4)
    assert lab.values(0) == [1] * 4


def test_room_on_the_host_grows_to_the_longest_forward(lab: Lab) -> None:
    for first, count in ((0, 1), (1, 3), (4, 12)):
        lab.run(first, list(range(first, first + count)))
    assert lab.values(0) == [0, 1, 1, 1]
    assert [lab.values(block) for block in (1, 2, 3)] == [[4] * 4] * 3


def test_memory_that_the_host_refused_is_asked_for_once(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Pinning takes a second or two, and the engine waits for it."""
    lab.run(1, [0, 1, 2, 3])
    assert lab.values(0) == [1] * 4
    asked: list[int] = []

    def refuse(*size: int, **options: object) -> Tensor:
        if size == (0,):
            return torch.zeros(0)
        asked.append(*size)
        raise RuntimeError("no memory to pin")

    with monkeypatch.context() as patched:
        patched.setattr(torch, "empty", refuse)
        for _ in range(2 * HOST_ROOMS):
            lab.run(2, list(range(16)))
            assert lab.values(0) is None
    assert len(asked) == HOST_ROOMS
    assert "missed" in caplog.text


def test_a_padded_row_was_taken_for_a_token(lab: Lab) -> None:
    """Captured graphs have rows that no request asked for; their place is -1."""
    lab.run(1, [0, 1, 2], padded=5)
    assert lab.values(0) is None


def test_slots_may_come_after_the_forward(lab: Lab) -> None:
    """vLLM's V2 runner tells of a captured forward when it was launched."""
    lab.forwards.begin()
    lab.launch(4, 4)
    lab.forwards.note_slots(torch.tensor([0, 1, 2, 3], dtype=torch.int32))
    lab.forwards.end(has_failed=False, is_idle=False)
    assert lab.values(0) == [4] * 4


@pytest.mark.parametrize("misses", ["slots", "failed", "too many"])
def test_old_rows_of_a_block_were_taken_for_those_of_a_forward_that_was_missed(
    lab: Lab, misses: str
) -> None:
    """The block may be another request's by then."""
    lab.run(1, [0, 1, 2, 3])
    slots = None if misses == "slots" else torch.arange(17 if misses == "too many" else 4)
    lab.forwards.begin()
    if slots is not None:
        lab.forwards.note_slots(slots)
    lab.launch(2, 4)
    lab.forwards.end(has_failed=misses == "failed", is_idle=False)
    assert lab.values(0) is None
    lab.run(3, [0, 1, 2, 3])
    assert lab.values(0) == [3] * 4


def test_a_step_that_computes_nothing_misses_nothing(lab: Lab) -> None:
    lab.run(1, [0, 1, 2, 3])
    lab.forwards.begin()
    lab.forwards.end(has_failed=False, is_idle=True)
    assert lab.values(0) == [1] * 4


def test_the_engine_never_waits_for_the_host(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    """While too many forwards are on their way the rows of another are missed, with one line."""
    is_let_go = threading.Event()

    def hold(rows: BlockRows) -> None:
        del rows
        assert is_let_go.wait(PATIENCE_S)

    lab.late.use(hold)
    for value in range(HOST_ROOMS + 2):
        lab.run(value, [0, 1, 2, 3])
    assert len([line for line in caplog.messages if "more slowly" in line]) == 1
    is_let_go.set()
    assert lab.values(0) is None
    wait_until(lambda: lab.forwards._rooms.qsize() == HOST_ROOMS)
    lab.run(7, [0, 1, 2, 3])
    assert lab.values(0) == [7] * 4


class Full(DelayedCopies):
    """A device without memory for a copy of what its second call asks for."""

    is_full = False

    def fetch(self, sources: object, target: Tensor) -> object:  # type: ignore[override]  # as asked
        if self.is_full and target.dtype is not torch.int64:
            raise torch.OutOfMemoryError("no memory")
        return super().fetch(sources, target)  # type: ignore[arg-type]  # as asked


def test_a_forward_without_memory_for_its_copy_ended_the_engine() -> None:
    copies = Full(delay_s=LATE_S)
    lab = Lab(copies)
    lab.run(1, [0, 1, 2, 3])
    copies.is_full = True
    lab.run(2, [0, 1, 2, 3])
    copies.is_full = False
    assert lab.values(0) is None
    for value in range(HOST_ROOMS):
        lab.run(value, [0, 1, 2, 3])
        assert lab.values(0) == [value] * 4


def test_inputs_of_another_shape_end_it_with_one_sentence(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    lab.staged.write(0, torch.ones(4, WIDTH + 1), None)
    for value in range(2):
        lab.run(value, [0, 1, 2, 3])
    assert lab.values(0) is None
    assert len([line for line in caplog.messages if "no rows of hidden states" in line]) == 1
