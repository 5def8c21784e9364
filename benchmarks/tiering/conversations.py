"""Conversations with the statistics that the paper gives of its own. Pure.

Turns are 1 or, for those of several, 2 and a geometric number more. The tokens of a turn
are log-normal around the verbosity of its conversation, which is log-normal, too; the two unknowns
are found from the two shares of long conversations.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from benchmarks.tiering import paper

TURN_SIGMA = 0.7
"""Spread of the turns of one conversation."""
_PROBES = 4000
_STEPS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """``arrival_s`` is that of the first turn; ``turns`` has the tokens of each with its reply."""

    arrival_s: float
    turns: tuple[int, ...]

    @property
    def token_count(self) -> int:
        """Tokens of all turns."""
        return sum(self.turns)


def generate(seed: int, *, count: int, sessions_per_s: float) -> list[Conversation]:
    """So many conversations that begin at random times at this mean rate."""
    dice = random.Random(seed)
    median, sigma = _verbosity(random.Random(0))
    found, now_s = [], 0.0
    for _ in range(count):
        now_s += dice.expovariate(sessions_per_s)
        verbosity = median * math.exp(dice.gauss(0, sigma))
        found.append(Conversation(arrival_s=now_s, turns=_turns(dice, verbosity)))
    return found


def statistics_of(conversations: Sequence[Conversation]) -> dict[str, tuple[float, float]]:
    """What the paper says of its conversations: ours and its own."""

    def share(tokens: int) -> float:
        return fmean(each.token_count > tokens for each in conversations)

    return {
        "turns": (fmean(len(each.turns) for each in conversations), paper.MEAN_TURNS),
        "multi_turn": (
            fmean(len(each.turns) > 1 for each in conversations),
            paper.MULTI_TURN_SHARE,
        ),
        "longer_than_2k": (share(2048), paper.LONGER_THAN_2K),
        "longer_than_4k": (share(4096), paper.LONGER_THAN_4K),
    }


def _turns(dice: random.Random, verbosity: float) -> tuple[int, ...]:
    return tuple(
        max(1, round(verbosity * math.exp(dice.gauss(0, TURN_SIGMA))))
        for _ in range(_turn_count(dice))
    )


def _turn_count(dice: random.Random) -> int:
    if dice.random() >= paper.MULTI_TURN_SHARE:
        return 1
    mean_more = (paper.MEAN_TURNS - 1) / paper.MULTI_TURN_SHARE - 1
    goes_on = mean_more / (1 + mean_more)
    return 2 + int(math.log(1 - dice.random()) / math.log(goes_on))


def _verbosity(dice: random.Random) -> tuple[float, float]:
    """Median and spread of a turn's tokens that give the paper's two shares."""
    shapes = [(sum(_scales(dice)), dice.gauss(0, 1)) for _ in range(_PROBES)]
    low, high = 0.0, 4.0
    for _ in range(_STEPS):
        sigma = (low + high) / 2
        totals = sorted(scale * math.exp(sigma * spread) for scale, spread in shapes)
        at_2k = totals[int(_PROBES * (1 - paper.LONGER_THAN_2K))]
        at_4k = totals[int(_PROBES * (1 - paper.LONGER_THAN_4K))]
        low, high = (sigma, high) if at_4k / at_2k < 2 else (low, sigma)
    return 2048 / at_2k, sigma


def _scales(dice: random.Random) -> list[float]:
    return [math.exp(dice.gauss(0, TURN_SIGMA)) for _ in range(_turn_count(dice))]
