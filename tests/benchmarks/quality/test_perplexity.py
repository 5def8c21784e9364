"""Losses of a text that is said in turns, with a history that comes from a store and is cut."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.benchmark import BenchmarkError
from benchmarks.quality.model import WINDOW_TOKENS
from benchmarks.quality.perplexity import TURN_TOKENS, losses_of, perplexity, talk_through
from benchmarks.quality.run import Lab
from benchmarks.quality.talk import Talker
from benchmarks.quality.way import Way
from engine_adapters.runner.engine.request import Completion
from kvstored_client.testing import MemoryClient
from kvstored_contract.keys import Cut
from tests.benchmarks.quality.talking import lab_in_memory
from tests.support.scale import Scale, at

TURNS = 4


def script_of(lab: Lab) -> list[int]:
    return lab.texts["documents"][: TURNS * TURN_TOKENS]


@at(Scale.QUICK)
def test_what_the_runner_cuts_is_what_a_cache_cut_by_hand_says(small_model: Path) -> None:
    with lab_in_memory(small_model) as lab:
        script = script_of(lab)
        losses, cuts = talk_through(lab.talker, lab.teacher, "one", script)
    assert len(losses) == len(script)
    # One before a turn and one in the middle of an answer, at least.
    firsts = {cut.first_token % TURN_TOKENS == TURN_TOKENS - 1 for cut in cuts}
    assert firsts == {True, False}
    by_hand = losses_of(lab.model, script, cuts, Way.AS, window_tokens=WINDOW_TOKENS)
    assert torch.isnan(losses[0])
    assert torch.isnan(by_hand[0])
    assert torch.allclose(losses[1:], by_hand[1:], atol=1e-4)
    recomputed = losses_of(lab.model, script, cuts, Way.TT, window_tokens=WINDOW_TOKENS)
    first = cuts[0].first_token + 1
    assert torch.allclose(losses[1:first], recomputed[1:first], atol=1e-4)
    assert not torch.allclose(losses[first:], recomputed[first:], atol=1e-3)


def test_a_turn_that_restores_nothing_is_no_measurement(small_model: Path) -> None:
    with lab_in_memory(small_model) as lab:

        class Forgetful(Talker):
            def take_turn(self, name: str, prompt: Sequence[int], **options: Any) -> Completion:
                done = super().take_turn(name, prompt, **options)
                layout_id = self._state_format.layout.layout_id
                assert isinstance(self._client, MemoryClient)
                chunks = self._client.store.chunks
                for key, chunk in list(chunks.items()):
                    if chunk.layout_id == layout_id:
                        del chunks[key]
                return done

        talker = Forgetful(
            lab.talker._client,
            lab.teacher,
            lab.talker._state_format,
            window_tokens=WINDOW_TOKENS,
        )
        with pytest.raises(BenchmarkError, match="restored nothing"):
            talk_through(talker, lab.teacher, "one", script_of(lab))


def test_perplexity_is_that_of_tokens_after_the_first_cut() -> None:
    cut = Cut(first_token=2, dropped_count=1, kept=(range(1, 2),))
    losses = torch.tensor([math.nan, 9.0, 9.0, math.log(4), math.log(16)])
    assert perplexity(losses, [cut]) == pytest.approx(8.0)
    with pytest.raises(BenchmarkError, match="did not overflow"):
        perplexity(losses, [])
