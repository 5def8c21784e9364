"""A tie of two logits is no difference; every other one is."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from benchmarks.conversations.same_answers import TIE, ties
from engine_adapters.runner.engine.request import Completion
from engine_adapters.runner.engine.restore_report import RestoreReport

PROMPT = (7, 7)


def turn(*said: int, before: Sequence[int] = ()) -> Completion:
    return Completion(
        request_id=0,
        token_ids=(*before, *PROMPT, *said),
        prompt_tokens=len(before) + len(PROMPT),
        computed_tokens=0,
        ttft_s=0.0,
        duration_s=0.0,
        restore=RestoreReport(),
    )


def logits_of(*values: float, wanted: Sequence[int] = ()) -> "LogitsOnce":
    return LogitsOnce(torch.tensor(values), wanted)


class LogitsOnce:
    """Gives the same logits, and knows after which tokens."""

    def __init__(self, values: Tensor, wanted: Sequence[int]) -> None:
        self._values = values
        self._wanted = tuple(wanted)

    def __call__(self, token_ids: Sequence[int]) -> Tensor:
        assert tuple(token_ids) == self._wanted
        return self._values


def test_equal_conversations_have_no_tie() -> None:
    talks = {"a": [turn(1, 2)], "b": [turn(3)]}
    assert ties(talks, talks, logits_of()) == 0


def test_two_tokens_with_one_logit_are_a_tie_and_end_the_comparison() -> None:
    first = turn(1, 2)
    ours = {"a": [first, turn(0, before=first.token_ids)]}
    others = {"a": [turn(1, 3), turn(5, before=(*PROMPT, 1, 3))]}
    logits = logits_of(0.0, 0.0, 4.0, 4.0 - TIE / 2, wanted=(*PROMPT, 1))
    assert ties(ours, others, logits) == 1


@pytest.mark.parametrize("values", [(0.0, 0.0, 4.0, 3.9), (9.0, 0.0, 4.0, 4.0)])
def test_another_token_is_a_difference(values: tuple[float, ...]) -> None:
    logits = logits_of(*values, wanted=PROMPT)
    assert ties({"a": [turn(2)]}, {"a": [turn(3)]}, logits) is None


def test_a_difference_in_a_later_turn_is_found() -> None:
    first = turn(1)
    ours, others = ({"a": [first, turn(said, before=first.token_ids)]} for said in (2, 3))
    logits = logits_of(0.0, 0.0, 4.0, 3.0, wanted=(*first.token_ids, *PROMPT))
    assert ties(ours, others, logits) is None


def test_who_says_more_says_something_else() -> None:
    assert ties({"a": [turn(1)]}, {"a": [turn(1, 2)]}, logits_of()) is None


def test_other_conversations_are_a_difference() -> None:
    assert ties({"a": [turn(1)]}, {"b": [turn(1)]}, logits_of()) is None


def test_another_history_is_a_difference() -> None:
    ours, others = ({"a": [turn(1, before=(before,))]} for before in (5, 6))
    assert ties(ours, others, logits_of()) is None


def test_a_turn_that_is_missing_is_a_difference() -> None:
    assert ties({"a": [turn(1)]}, {"a": [turn(1), turn(2)]}, logits_of()) is None
