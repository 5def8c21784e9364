"""What one machine needs for one model: measured once, then asked for any history."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Self

from engine_adapters.restore.layer_costs import LayerCosts
from engine_adapters.restore.least_squares import Sample, fit
from engine_adapters.restore.source import Source
from kvstored_contract.layout import RAW

PLANNED_TOKENS = 4096
"""Length of the history that is planned for, unless ``calibrate`` gets another one."""

SPREAD_UNKNOWN = 2.0
"""Of a profile that does not tell how far its repetitions were apart."""

_MAY_BE_ZERO = frozenset(
    {
        "compute_square_s",
        "compute_constant_s",
        "project_constant_s",
        "load_token_s",
        "load_constant_s",
        "read_latency_s",
        "decode_hidden_token_s",
        "decode_kv_token_s",
    }
)


def slower_s(*, read_s: float, decode_s: float) -> float:
    """Loading: a thread decodes what has arrived while more is read, so the slower one counts.

    It is a simple model. Where the thread shares its cores with a model that computes on them,
    both take longer than alone: there loading takes at least this. A second span in flight has
    a thread of its own, so that a long history can take less where cores are idle. Filling the
    pipeline, which takes about a slice, is not counted either.
    """
    return max(read_s, decode_s)


class ProfileError(ValueError):
    """A profile that cannot be used; one sentence that says what is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostProfile:
    """The lines of HCache's offline profiling (section 4.1.2), for one layer, and decoding.

    For n tokens a layer takes ``compute_token_s * n + compute_square_s * n ** 2 +
    compute_constant_s`` seconds from the tokens and ``project_token_s * n +
    project_constant_s`` from its hidden states; its keys and values, once they are read, take
    ``load_token_s * n + load_constant_s`` more until they lie rotated in the cache. Reading b
    bytes takes ``b / read_bytes_per_s + read_latency_s``. ``hidden_bytes`` and ``kv_bytes`` are
    those of one token in one layer. Decoding one token of one layer takes
    ``decode_hidden_token_s`` or ``decode_kv_token_s`` with ``codec``, the only one that was
    measured; for RAW both are 0, else above 0. ``planned_tokens`` is the length of the history
    that schedules are made for: one for all requests, since what is stored is decided before
    the first one.
    ``compute_spread`` and ``read_spread`` are the slowest of repeated measurements over their
    median, at least 1. ``measured_at_s`` is seconds since 1970. Raises ProfileError.
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
    load_token_s: float = 0.0
    load_constant_s: float = 0.0
    read_bytes_per_s: float
    read_latency_s: float = 0.0
    codec: str = RAW
    decode_hidden_token_s: float = 0.0
    decode_kv_token_s: float = 0.0
    planned_tokens: int = PLANNED_TOKENS
    compute_spread: float = SPREAD_UNKNOWN
    read_spread: float = SPREAD_UNKNOWN

    def __post_init__(self) -> None:
        for field in fields(self):
            self._check(field.name, field.type)
        for name in ("compute_spread", "read_spread"):
            if getattr(self, name) < 1:
                raise ProfileError(f"{name} is {getattr(self, name)}; it must be at least 1")
        decode_s = (self.decode_hidden_token_s, self.decode_kv_token_s)
        if any((seconds > 0) is (self.codec == RAW) for seconds in decode_s):
            least = "0" if self.codec == RAW else "above 0"
            raise ProfileError(
                f"decoding a token takes {decode_s[0]} s and {decode_s[1]} s; with codec "
                f"{self.codec} it must be {least}"
            )

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
        load: Sequence[Sample],
        read: Sequence[Sample],
        codec: str = RAW,
        decode_hidden_token_s: float = 0.0,
        decode_kv_token_s: float = 0.0,
        planned_tokens: int = PLANNED_TOKENS,
        compute_spread: float = SPREAD_UNKNOWN,
        read_spread: float = SPREAD_UNKNOWN,
    ) -> Self:
        """Least squares through measurements of one layer.

        The sizes of ``compute``, ``project`` and ``load`` are tokens, those of ``read`` bytes.
        Raises ValueError where there are none.
        """
        computed = fit(compute, degree=2)
        projected = fit(project, degree=1)
        loading = fit(load, degree=1)
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
            load_token_s=loading.linear,
            load_constant_s=loading.constant,
            read_bytes_per_s=1 / reading.linear,
            read_latency_s=reading.constant,
            codec=codec,
            decode_hidden_token_s=decode_hidden_token_s,
            decode_kv_token_s=decode_kv_token_s,
            planned_tokens=planned_tokens,
            compute_spread=compute_spread,
            read_spread=read_spread,
        )

    @property
    def doubt(self) -> float:
        """Times as much as expected that a step or a chunk may take (``Rates``).

        At least SPREAD_UNKNOWN: the moments of the calibration are not those of a restoration.
        """
        return max(SPREAD_UNKNOWN, self.compute_spread, self.read_spread)

    def moving(self, share: float) -> Self:
        """Where reads move that share of the states' bytes: as of a device faster by as much."""
        return replace(self, read_bytes_per_s=self.read_bytes_per_s / share)

    def token_bytes(self, source: Source) -> int:
        """Bytes of one token in one layer that is stored for ``source``, HIDDEN or KV."""
        return self.hidden_bytes if source is Source.HIDDEN else self.kv_bytes

    def take_token_s(self, source: Source) -> float:
        """Seconds in which one token of one layer gets into the cache, once it has been read."""
        return self.project_token_s if source is Source.HIDDEN else self.load_token_s

    def decode_token_s(self, source: Source, codec: str) -> float:
        """Seconds of decoding one token of one layer; 0 where ``codec`` was not measured."""
        if codec != self.codec:
            return 0.0
        return self.decode_hidden_token_s if source is Source.HIDDEN else self.decode_kv_token_s

    def costs(self, token_count: int, *, codec: str = RAW) -> LayerCosts:
        """Costs of one layer for a history of so many tokens; raises ValueError below 1.

        The io of a layer that is stored with ``codec`` takes as long as the slower of reading
        and decoding it (``slower_s``).
        """
        if token_count < 1:
            raise ValueError(f"a history has at least 1 token, not {token_count}")
        return LayerCosts(
            io_hidden_s=self._io_s(token_count, Source.HIDDEN, codec),
            io_kv_s=self._io_s(token_count, Source.KV, codec),
            compute_s=self.compute_token_s * token_count
            + self.compute_square_s * token_count**2
            + self.compute_constant_s,
            project_s=self.project_token_s * token_count + self.project_constant_s,
            load_s=self.load_token_s * token_count + self.load_constant_s,
        )

    def _io_s(self, token_count: int, source: Source, codec: str) -> float:
        byte_count = token_count * self.token_bytes(source)
        return slower_s(
            read_s=byte_count / self.read_bytes_per_s + self.read_latency_s,
            decode_s=token_count * self.decode_token_s(source, codec),
        )

    def age_s(self, now_s: float) -> float:
        """Seconds since it was measured; 0 where the clock has been set back."""
        return max(0.0, now_s - self.measured_at_s)
