"""What the measured part runs: a model, and the settings in which it restores."""

from dataclasses import dataclass
from enum import Enum

from benchmarks.interleave import Rounds
from engine_adapters.runner.random_model import RandomModelShape


class Balance(Enum):
    """Which side a setting starves (HCache, section 6.3.1)."""

    COMPUTE_RICH = "compute-rich"
    BALANCED = "balanced"
    IO_RICH = "IO-rich"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSetting:
    """A history on a machine whose device reads ``bandwidth_share`` times as fast as balance.

    At balance reading hidden states takes as long as projecting them (IO_H = C_H), with the
    ``threads`` of torch that the setting has.
    """

    token_count: int
    bandwidth_share: float
    threads: int

    @property
    def name(self) -> str:
        """For the keys of its series."""
        share = f"{self.bandwidth_share:g}".replace(".", "_")
        return f"{self.token_count}_tokens_bandwidth_{share}_threads_{self.threads}"

    @property
    def balance(self) -> Balance:
        """Which of both is plenty."""
        if self.bandwidth_share < 1:
            return Balance.COMPUTE_RICH
        return Balance.BALANCED if self.bandwidth_share == 1 else Balance.IO_RICH


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """All settings and how often each mode restores in each."""

    shape: RandomModelShape
    settings: tuple[MeasuredSetting, ...]
    rounds: Rounds


def _settings(
    lengths: tuple[int, ...], shares: tuple[float, ...], threads: tuple[int, ...], tokens: int
) -> tuple[MeasuredSetting, ...]:
    """Lengths at balance, then bandwidths, then threads, each with the others as they are."""
    first = threads[0]
    grid = [(length, 1.0, first) for length in lengths]
    grid += [(tokens, share, first) for share in shares]
    grid += [(tokens, 1.0, count) for count in threads]
    return tuple(
        MeasuredSetting(token_count=length, bandwidth_share=share, threads=count)
        for length, share, count in dict.fromkeys(grid)
    )


FULL = Scale(
    shape=RandomModelShape(
        hidden_size=512, intermediate_size=1408, layer_count=24, head_count=8, kv_head_count=8
    ),
    settings=_settings((1024, 2048, 4096, 8192), (0.25, 0.5, 2.0, 4.0), (1, 2), 2048),
    rounds=Rounds(count=5, count_min=3, time_limit_s=150.0),
)

QUICK = Scale(
    shape=RandomModelShape(
        hidden_size=512, intermediate_size=1408, layer_count=16, head_count=8, kv_head_count=8
    ),
    settings=_settings((1024,), (0.25, 4.0), (1,), 1024),
    rounds=Rounds(count=3, count_min=3, time_limit_s=30.0),
)

ABLATION = Scale(
    shape=FULL.shape,
    settings=tuple(
        MeasuredSetting(token_count=1024, bandwidth_share=share, threads=1) for share in (4.0, 0.25)
    ),
    rounds=Rounds(count=15, count_min=5, time_limit_s=240.0),
)
"""Hidden states beside KV, and beside computing; as many tokens as in section 6.3.2."""

ABLATION_QUICK = Scale(
    shape=QUICK.shape,
    settings=ABLATION.settings,
    rounds=Rounds(count=3, count_min=3, time_limit_s=20.0),
)
