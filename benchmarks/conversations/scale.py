"""What is measured: a model, conversations, and how often."""

from dataclasses import dataclass

from benchmarks.conversations import paper
from benchmarks.interleave import Rounds
from engine_adapters.restore import LEAST_WAIT_S
from engine_adapters.runner.model.random_model import RandomModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """``count`` conversations of ``turns`` turns after their first, with tokens of each.

    Of each turn all conversations come at once, in another order each time. An answer has up to
    ``answer_spread`` tokens more or fewer: answers of one length would all end together.
    """

    count: int
    turns: int
    first_tokens: int
    turn_tokens: int
    answer_tokens: int
    answer_spread: int = 0

    @property
    def tokens_max(self) -> int:
        """Of one conversation at its end."""
        return self.first_tokens + self.turns * self.turn_tokens + self.answers_max

    @property
    def answers_max(self) -> int:
        """Generated tokens of one conversation."""
        return (self.turns + 1) * (self.answer_tokens + self.answer_spread)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """All parts: ``turn_rounds`` of whole workloads, ``rounds`` of the others.

    Where the engine waits for a store without gaining, it does so for ``least_wait_s`` at least. A
    ``window`` overflows with ``overflow_turns`` turns; ``saved_prompts`` are figure 20's.
    """

    shape: RandomModelShape
    workload: Workload
    histories: tuple[tuple[int, int], ...]
    buffers: tuple[int, ...]
    window: int
    overflow_turns: int
    saved_prompts: tuple[int, ...]
    turn_rounds: Rounds
    rounds: Rounds
    least_wait_s: float = LEAST_WAIT_S


FULL = Scale(
    shape=RandomModelShape(
        hidden_size=256, intermediate_size=512, layer_count=40, head_count=4, kv_head_count=2
    ),
    workload=Workload(
        count=24, turns=2, first_tokens=1500, turn_tokens=96, answer_tokens=8, answer_spread=6
    ),
    histories=paper.HISTORIES,
    buffers=paper.BUFFERS,
    window=1024,
    overflow_turns=12,
    saved_prompts=(1000, 1200, 1400, 1600),
    turn_rounds=Rounds(count=3, count_min=3, time_limit_s=1800.0),
    rounds=Rounds(count=9, count_min=7, time_limit_s=300.0),
)
"""As many layers as LLaMA-13B has, and conversations that take most of its 2,048 tokens."""

QUICK = Scale(
    shape=RandomModelShape(
        hidden_size=256, intermediate_size=512, layer_count=20, head_count=4, kv_head_count=2
    ),
    workload=Workload(
        count=8, turns=1, first_tokens=1000, turn_tokens=96, answer_tokens=8, answer_spread=6
    ),
    histories=(paper.HISTORIES[0], paper.HISTORIES[-1]),
    buffers=paper.BUFFERS,
    window=1024,
    overflow_turns=6,
    saved_prompts=(1000,),
    turn_rounds=Rounds(count=1, count_min=1, time_limit_s=0.0),
    rounds=Rounds(count=2, count_min=2, time_limit_s=0.0),
)
