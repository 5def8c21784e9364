"""What a machine with a GPU should reach, and whether it did. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A figure, and the limit that it must not pass: from above, or with ``is_least`` below."""

    figure: str
    limit: float
    is_least: bool = False

    def is_met(self, value: float) -> bool:
        """Whether the value keeps the limit."""
        return value >= self.limit if self.is_least else value <= self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A target, and what was measured; None where that was left out."""

    target: Target
    value: float | None

    @property
    def word(self) -> str:
        """For people."""
        if self.value is None:
            return "not measured"
        return "met" if self.target.is_met(self.value) else "MISSED"


TARGETS = (
    Target(figure="gpu_tests_failed", limit=0.0),
    Target(figure="gpu_tokens_equal", limit=1.0, is_least=True),
    Target(figure="gpu_hcache_vs_bound_max", limit=1.05),
    Target(figure="gpu_hcache_vs_kv_x", limit=1.3, is_least=True),
    Target(figure="gpu_cake_vs_oracle_max", limit=1.03),
    Target(figure="gpu_saving_overhead_pct", limit=2.0),
    Target(figure="gpu_copies_vs_pinned_min", limit=0.95, is_least=True),
)


def verdicts(figures: Mapping[str, float]) -> tuple[Verdict, ...]:
    """One for each target, measured or not."""
    return tuple(Verdict(target=target, value=figures.get(target.figure)) for target in TARGETS)
