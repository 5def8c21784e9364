"""How well a text is foretold after its window has overflowed (AttentionStore, table 1)."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.benchmark import BenchmarkError
from benchmarks.quality.bare_window import logits_of
from benchmarks.quality.talk import Talker
from benchmarks.quality.teacher import TeacherModel
from benchmarks.quality.way import Way
from engine_adapters.runner.model.model import Model
from kvstored_contract.keys import Cut

PROMPT_TOKENS = 80
ANSWER_TOKENS = 112
"""Of each turn. A window is cut before turns and in the middle of answers."""
TURN_TOKENS = PROMPT_TOKENS + ANSWER_TOKENS


def talk_through(
    talker: Talker, model: TeacherModel, name: str, script: Sequence[int]
) -> tuple[Tensor, list[Cut]]:
    """Says ``script`` in whole turns, each of which restores what it continues from the store.

    ``model`` is the talker's. Returns the losses of the tokens [n], nats, and the cuts that the
    engine made. Raises BenchmarkError where a turn did not go through the store.
    """
    model.teach(script)
    cuts: list[Cut] = []
    for first in range(0, len(script) - TURN_TOKENS + 1, TURN_TOKENS):
        done = talker.take_turn(
            name, script[first : first + PROMPT_TOKENS], new_tokens=ANSWER_TOKENS
        )
        if list(done.token_ids) != list(script[: first + TURN_TOKENS]):
            raise BenchmarkError(f"the turn of {name} from token {first} said something else")
        if first and not done.restore.restored_tokens:
            raise BenchmarkError(f"the turn of {name} from token {first} restored nothing")
        cuts += done.cuts
    return model.losses, cuts


def losses_of(
    model: Model, script: Sequence[int], cuts: Sequence[Cut], way: Way, *, window_tokens: int
) -> Tensor:
    """As ``talk_through``, with these cuts, made in a cache of its own in another way."""
    logits = logits_of(model, script, cuts, way, window_tokens=window_tokens)
    losses = cross_entropy(logits, torch.tensor(script[1:]), reduction="none")
    return torch.cat((torch.full((1,), torch.nan), losses))


def perplexity(losses: Tensor, cuts: Sequence[Cut]) -> float:
    """Of all tokens that were foretold after the first cut; raises BenchmarkError without one."""
    if not cuts:
        raise BenchmarkError("the text did not overflow the window")
    return float(losses[cuts[0].first_token + 1 :].double().mean().exp())
