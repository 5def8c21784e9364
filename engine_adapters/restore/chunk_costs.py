"""What computing and loading the chunks of one request cost."""

import math
from dataclasses import dataclass, fields, replace
from typing import Self

from engine_adapters.restore.cost_profile import CostProfile, slower_s
from engine_adapters.restore.least_squares import Curve
from engine_adapters.restore.source import Source
from kvstored_contract.layout import RAW


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

    @classmethod
    def of_curve(cls, curve: Curve, layer_count: int) -> Self:
        """The costs of a model of that many layers, by the curve of one layer of a history."""
        return cls(
            step_s=layer_count * curve.constant,
            token_s=layer_count * curve.linear,
            attention_s=2 * layer_count * curve.square,
        )

    def scaled(self, factor: float) -> Self:
        """All costs that many times as high."""
        return type(self)(
            step_s=factor * self.step_s,
            token_s=factor * self.token_s,
            attention_s=factor * self.attention_s,
        )

    def beside(self, others_tokens: float) -> Self:
        """Steps that compute so many tokens of other requests as well, their attention aside."""
        return replace(self, step_s=self.step_s + others_tokens * self.token_s)

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
    states: HCache, section 4.1.2; keys and values are copied and rotated). Raises ValueError.
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
        decode_s: float = 0.0,
        project_s: float = 0.0,
    ) -> Self:
        """Chunks of that size; ``issue_s`` is what each one takes besides its bytes.

        While a chunk is decoded, which takes ``decode_s``, the next one is read.
        """
        read_s = issue_s + chunk_bytes / bytes_per_s
        return cls(
            chunk_s=slower_s(read_s=read_s, decode_s=decode_s),
            latency_s=latency_s,
            project_s=project_s,
        )

    @classmethod
    def of_profile(
        cls,
        profile: CostProfile,
        source: Source,
        *,
        layer_count: int,
        chunk_tokens: int,
        codec: str = RAW,
    ) -> Self:
        """All layers from one source, ``HIDDEN`` or ``KV``, stored with ``codec``."""
        token_layers = layer_count * chunk_tokens
        return cls.of_bytes(
            token_layers * profile.token_bytes(source),
            bytes_per_s=profile.read_bytes_per_s,
            latency_s=profile.read_latency_s,
            decode_s=token_layers * profile.decode_token_s(source, codec),
            project_s=layer_count * profile.take_token_s(source),
        )
