"""What one machine needs for one model: measured once, then asked for any history."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

from engine_adapters.restore.layer_costs import LayerCosts
from engine_adapters.restore.least_squares import Sample, fit

_MAY_BE_ZERO = frozenset(
    {"compute_square_s", "compute_constant_s", "project_constant_s", "read_latency_s"}
)


class ProfileError(ValueError):
    """A profile that cannot be used; one sentence that says what is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostProfile:
    """The lines of HCache's offline profiling (section 4.1.2), for one layer.

    For n tokens a layer takes ``compute_token_s * n + compute_square_s * n ** 2 +
    compute_constant_s`` seconds from the tokens and ``project_token_s * n +
    project_constant_s`` from its hidden states; reading b bytes takes
    ``b / read_bytes_per_s + read_latency_s``. ``hidden_bytes`` and ``kv_bytes`` are those of
    one token in one layer. ``measured_at_s`` is seconds since 1970. Raises ProfileError.
    """

    model: str
    machine: str
    measured_at_s: float
    hidden_bytes: int
    kv_bytes: int
    compute_token_s: float
    compute_square_s: float = 0.0
    compute_constant_s: float = 0.0
    project_token_s: float
    project_constant_s: float = 0.0
    read_bytes_per_s: float
    read_latency_s: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            self._check(field.name, field.type)

    def _check(self, name: str, kind: object) -> None:
        value = getattr(self, name)
        if kind is str:
            if not (isinstance(value, str) and value):
                raise ProfileError(f"{name} is {value!r}; it must be a name")
            return
        if isinstance(value, bool) or not isinstance(value, int if kind is int else int | float):
            wanted = "a whole number" if kind is int else "a number"
            raise ProfileError(f"{name} is {value!r}; it must be {wanted}")
        least = "at least 0" if name in _MAY_BE_ZERO else "above 0"
        if not (math.isfinite(value) and (value > 0 or (value == 0 and name in _MAY_BE_ZERO))):
            raise ProfileError(f"{name} is {value}; it must be finite and {least}")

    @classmethod
    def fitted(
        cls,
        *,
        model: str,
        machine: str,
        measured_at_s: float,
        hidden_bytes: int,
        kv_bytes: int,
        compute: Sequence[Sample],
        project: Sequence[Sample],
        read: Sequence[Sample],
    ) -> Self:
        """Least squares through measurements of one layer.

        The sizes of ``compute`` and ``project`` are tokens, those of ``read`` bytes. Raises
        ValueError where there are none.
        """
        computed = fit(compute, degree=2)
        projected = fit(project, degree=1)
        reading = fit(read, degree=1)
        return cls(
            model=model,
            machine=machine,
            measured_at_s=measured_at_s,
            hidden_bytes=hidden_bytes,
            kv_bytes=kv_bytes,
            compute_token_s=computed.linear,
            compute_square_s=computed.square,
            compute_constant_s=computed.constant,
            project_token_s=projected.linear,
            project_constant_s=projected.constant,
            read_bytes_per_s=1 / reading.linear,
            read_latency_s=reading.constant,
        )

    def costs(self, token_count: int) -> LayerCosts:
        """Costs of one layer for a history of so many tokens; raises ValueError below 1."""
        if token_count < 1:
            raise ValueError(f"a history has at least 1 token, not {token_count}")
        return LayerCosts(
            io_hidden_s=self._read_s(token_count * self.hidden_bytes),
            io_kv_s=self._read_s(token_count * self.kv_bytes),
            compute_s=self.compute_token_s * token_count
            + self.compute_square_s * token_count**2
            + self.compute_constant_s,
            project_s=self.project_token_s * token_count + self.project_constant_s,
        )

    def _read_s(self, byte_count: int) -> float:
        return byte_count / self.read_bytes_per_s + self.read_latency_s

    def age_s(self, now_s: float) -> float:
        """Seconds since it was measured; 0 where the clock has been set back."""
        return max(0.0, now_s - self.measured_at_s)
