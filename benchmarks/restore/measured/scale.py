"""What the measured part runs: a model, and the settings in which it restores."""

from dataclasses import dataclass, replace
from enum import Enum

from benchmarks.interleave import Rounds
from engine_adapters.runner.model.random_model import RandomModelShape

SPLIT_LIMIT_X = 2
"""Times as long for the rounds of a setting where there are half as many settings."""


class Balance(Enum):
    """Which side a setting starves (HCache, section 6.3.1)."""

    COMPUTE_RICH = "compute-rich"
    BALANCED = "balanced"
    IO_RICH = "IO-rich"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSetting:
    """A history on a machine whose device reads ``bandwidth_share`` times as fast as balance.

    At balance reading hidden states takes as long as projecting them (IO_H = C_H) with
    ``balance_threads`` of torch. The setting restores with ``threads``, so that it can have
    the device of another compute speed.
    """

    token_count: int
    bandwidth_share: float
    threads: int
    balance_threads: int

    @property
    def name(self) -> str:
        """For the keys of its series."""
        share = f"{self.bandwidth_share:g}".replace(".", "_")
        device = f"bandwidth_{share}"
        if self.balance_threads != self.threads:
            device += f"_of_threads_{self.balance_threads}"
        return f"{self.token_count}_tokens_{device}_threads_{self.threads}"

    @property
    def balance(self) -> Balance:
        """Which of both is plenty."""
        surplus = self.bandwidth_share * self.balance_threads - self.threads
        if surplus < 0:
            return Balance.COMPUTE_RICH
        return Balance.IO_RICH if surplus else Balance.BALANCED


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """All settings and how often each mode restores in each."""

    shape: RandomModelShape
    settings: tuple[MeasuredSetting, ...]
    rounds: Rounds
    is_split: bool = False
    """Whether computing has a core for itself."""

    def split(self) -> "Scale":
        """With a core for each side: one length at all bandwidths, on one thread."""
        alone = [one for one in self.settings if one.threads == one.balance_threads == 1]
        tokens = {one.token_count for one in alone if one.bandwidth_share != 1.0}
        chosen = tuple(one for one in alone if one.token_count in tokens)
        rounds = replace(self.rounds, time_limit_s=SPLIT_LIMIT_X * self.rounds.time_limit_s)
        return replace(self, settings=chosen, rounds=rounds, is_split=True)

    def compute_rich(self) -> "Scale":
        """With those settings only in which layers are worth recomputing."""
        chosen = (one for one in self.settings if one.balance is Balance.COMPUTE_RICH)
        return replace(self, settings=tuple(chosen))

    def contended(self) -> "Scale":
        """With those settings only in which reads and computation want the same cores."""
        chosen = (one for one in self.settings if one.bandwidth_share > 1.0 or one.threads > 1)
        return replace(self, settings=tuple(chosen))


def _settings(
    lengths: tuple[int, ...], shares: tuple[float, ...], threads: tuple[int, ...], tokens: int
) -> tuple[MeasuredSetting, ...]:
    """Lengths at balance, then bandwidths, then threads, each with the others as they are.

    Other threads than the first ones have the device of their own balance, and then that of
    the first ones': the same bytes/s for another compute speed.
    """
    first = threads[0]
    grid = [(length, 1.0, first, first) for length in lengths]
    grid += [(tokens, share, first, first) for share in shares]
    grid += [(tokens, 1.0, count, balance) for count in threads for balance in (count, first)]
    return tuple(
        MeasuredSetting(
            token_count=length, bandwidth_share=share, threads=count, balance_threads=balance
        )
        for length, share, count, balance in dict.fromkeys(grid)
    )


FULL = Scale(
    shape=RandomModelShape(
        hidden_size=512, intermediate_size=1408, layer_count=40, head_count=8, kv_head_count=8
    ),
    settings=_settings((1024, 2048, 4096, 8192), (0.25, 0.5, 2.0, 4.0), (1, 2), 2048),
    rounds=Rounds(count=9, count_min=3, time_limit_s=120.0),
)
"""As many layers as Llama2-13B has. Filling the pipeline takes a layer's read and rounding L_H up a
layer's projection at most: of 24 layers these two alone are up to a tenth of the bound where reads
are fast, of 40 a twentieth. A history of several spans fills the pipeline once.

Lengths end at 8192, for room and for time. A token takes 80 KiB as hidden states and 160 KiB as
keys and values, and a setting has seven layouts: with their slabs 8192 tokens take 7.4 GB, 16384
would take twice that. Computing them once grows with the square: 16384 tokens would take about as
long as several other settings together. Settings whose rounds are long have three of them, since
the figures are medians.
"""

QUICK = Scale(
    shape=RandomModelShape(
        hidden_size=512, intermediate_size=1408, layer_count=16, head_count=8, kv_head_count=8
    ),
    settings=_settings((1024,), (0.25, 4.0), (1,), 1024),
    rounds=Rounds(count=3, count_min=3, time_limit_s=30.0),
)

ABLATION = Scale(
    shape=replace(FULL.shape, layer_count=24),
    settings=tuple(
        MeasuredSetting(token_count=1024, bandwidth_share=share, threads=1, balance_threads=1)
        for share in (4.0, 0.25)
    ),
    rounds=Rounds(count=15, count_min=5, time_limit_s=240.0),
)
"""Hidden states beside KV, and beside computing; as many tokens as in section 6.3.2."""

ABLATION_QUICK = Scale(
    shape=QUICK.shape,
    settings=ABLATION.settings,
    rounds=Rounds(count=3, count_min=3, time_limit_s=20.0),
)
