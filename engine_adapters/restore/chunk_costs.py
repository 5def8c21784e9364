"""What computing and loading the chunks of one request cost."""

import math
from dataclasses import dataclass, fields
from typing import Self

from engine_adapters.restore.cost_profile import CostProfile
from engine_adapters.restore.source import Source


def _check(costs: object, names: tuple[str, ...]) -> None:
    for name in names:
        value = getattr(costs, name)
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name} is {value}; a cost is a finite time of at least 0 s")


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeCost:
    """Seconds of computing tokens; a line in the first position (Cake, section 4, figure 4).

    A step takes ``step_s`` whatever it computes (what other requests have in it included),
    ``token_s`` for each token of this request, and ``attention_s`` for each of them and
    each token before it. Raises ValueError.
    """

    step_s: float
    token_s: float
    attention_s: float

    def __post_init__(self) -> None:
        _check(self, tuple(field.name for field in fields(self)))
        if self.step_s + self.token_s == 0:
            raise ValueError("computing tokens takes some time")

    @classmethod
    def of_profile(cls, profile: CostProfile, layer_count: int) -> Self:
        """The costs of a model of that many layers, alone on its machine."""
        return cls(
            step_s=layer_count * profile.compute_constant_s,
            token_s=layer_count * profile.compute_token_s,
            attention_s=2 * layer_count * profile.compute_square_s,
        )

    def scaled(self, factor: float) -> Self:
        """All costs that many times as high."""
        return type(self)(
            step_s=factor * self.step_s,
            token_s=factor * self.token_s,
            attention_s=factor * self.attention_s,
        )

    def tokens_s(self, first: int, stop: int) -> float:
        """Tokens ``first`` to ``stop - 1``, without what their steps cost besides."""
        return (stop - first) * (self.token_s + self.attention_s * (first + stop) / 2)

    def compute_s(self, first: int, stop: int, step_tokens: float) -> float:
        """Tokens ``first`` to ``stop - 1`` in steps of ``step_tokens``, the last may be shorter."""
        return math.ceil((stop - first) / step_tokens) * self.step_s + self.tokens_s(first, stop)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadCost:
    """Seconds of loading chunks of one source.

    The first chunk arrives after ``latency_s + chunk_s``, every other one ``chunk_s`` after
    the one before. A loaded token keeps the compute side busy for ``project_s`` (hidden
    states: HCache, section 4.1.2; 0 for keys and values). Raises ValueError.
    """

    chunk_s: float
    latency_s: float = 0.0
    project_s: float = 0.0

    def __post_init__(self) -> None:
        _check(self, tuple(field.name for field in fields(self)))
        if self.chunk_s == 0:
            raise ValueError("loading a chunk takes some time")

    @property
    def first_s(self) -> float:
        """Until the first chunk arrives."""
        return self.latency_s + self.chunk_s

    @classmethod
    def of_bytes(
        cls,
        chunk_bytes: int,
        *,
        bytes_per_s: float,
        latency_s: float = 0.0,
        issue_s: float = 0.0,
        project_s: float = 0.0,
    ) -> Self:
        """Chunks of that size; ``issue_s`` is what each one takes besides its bytes."""
        return cls(
            chunk_s=issue_s + chunk_bytes / bytes_per_s, latency_s=latency_s, project_s=project_s
        )

    @classmethod
    def of_profile(
        cls, profile: CostProfile, source: Source, *, layer_count: int, chunk_tokens: int
    ) -> Self:
        """All layers from one source, ``HIDDEN`` or ``KV``."""
        is_hidden = source is Source.HIDDEN
        token_bytes = profile.hidden_bytes if is_hidden else profile.kv_bytes
        return cls.of_bytes(
            layer_count * chunk_tokens * token_bytes,
            bytes_per_s=profile.read_bytes_per_s,
            latency_s=profile.read_latency_s,
            project_s=layer_count * profile.project_token_s if is_hidden else 0.0,
        )
