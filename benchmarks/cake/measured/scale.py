"""How much the measured part of the benchmark does."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from benchmarks.cake.chosen_cells import FULL_CHOICES, QUICK_CHOICES, Choice
from benchmarks.interleave import Rounds
from engine_adapters.runner.model.random_model import RandomModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Two models, the history that stands for the paper's 16k tokens, and how often.

    ``more_rounds`` are added to the ``rounds`` of a cell in which a baseline seems to be faster;
    ``has_cachegen`` adds a cell that the paper does not have. ``chunk_tokens`` are those of a
    fetch. ``long_tokens`` has the history that is restored
    under fluctuation, and beside short requests: at full size so many that computing these
    takes about as large a part of it as the paper's (``adaptive_lab.SHORTS_OVER_LONG``).
    ``disturbed_rounds`` are those beside a process that comes and goes.
    ``check_passes`` are prefills with and without the check of the board, in steps of
    ``check_step_tokens``.
    """

    mha: RandomModelShape
    gqa: RandomModelShape
    tokens: int
    chunk_tokens: int
    choices: Mapping[int, Choice]
    rounds: Rounds
    more_rounds: Rounds
    has_cachegen: bool
    long_tokens: int
    long_rounds: Rounds
    disturbed_rounds: Rounds
    check_passes: int
    check_step_tokens: int


def _shape(kv_head_count: int) -> RandomModelShape:
    """Few wide layers: as with large models, loading a token costs far less than computing it."""
    return RandomModelShape(
        vocab_size=1024,
        hidden_size=512,
        intermediate_size=1408,
        layer_count=2,
        head_count=8,
        kv_head_count=kv_head_count,
        position_count=16_384,
    )


FULL = Scale(
    mha=_shape(8),
    gqa=_shape(2),
    tokens=4096,
    chunk_tokens=128,
    choices=FULL_CHOICES,
    rounds=Rounds(count=3, count_min=2, time_limit_s=45.0),
    more_rounds=Rounds(count=5, count_min=4, time_limit_s=60.0),
    has_cachegen=True,
    long_tokens=8192,
    long_rounds=Rounds(count=5, count_min=3, time_limit_s=75.0),
    disturbed_rounds=Rounds(count=20, count_min=20, time_limit_s=150.0),
    check_passes=10,
    check_step_tokens=512,
)

QUICK = replace(
    FULL,
    choices=QUICK_CHOICES,
    rounds=Rounds(count=2, count_min=1, time_limit_s=12.0),
    more_rounds=Rounds(count=3, count_min=2, time_limit_s=15.0),
    has_cachegen=False,
    long_tokens=4096,
    long_rounds=Rounds(count=2, count_min=2, time_limit_s=15.0),
    disturbed_rounds=Rounds(count=4, count_min=2, time_limit_s=30.0),
    check_passes=3,
)
