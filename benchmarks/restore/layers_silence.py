"""``--part layers_silence``: what a store that falls silent costs, by tokens and by layers.

The limits are the product's under a virtual clock, that by tokens as vLLM and ranks have it,
without the least wait of 20 ms. Nothing is measured.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from benchmarks.benchmark import Settings
from benchmarks.report import Series, Summary
from benchmarks.restore.show import new_table, show
from engine_adapters.restore import ComputeCost, LayerwiseLimit, LoadLimit, TokenRange

FIGURES = ("silence_by_tokens_max", "silence_by_layers_max")
LAYERS, TOKENS, SPANS, HISTORY_BYTES = 32, 4096, 64, 1 << 30
LOOKS = 4000
"""Looks while everything could be computed once."""
COMPUTE = ComputeCost(step_s=0.0, token_s=1.0 / TOKENS, attention_s=0.0)
"""Computing everything takes one second."""
CAPS = (0.04, 0.25)
"""Of computing everything: what loading by layers may cost in all, as a remedy."""


@dataclass(frozen=True, slots=True)
class SilentStore:
    """Brings ``pace`` histories while one is computed, and nothing after ``share`` of it."""

    pace: float
    share: float

    @property
    def name(self) -> str:
        """As the table says it."""
        end = "all comes" if self.share >= 1 else f"silent at {100 * self.share:.0f} %"
        return f"{self.pace:g} times computing, {end}"

    def came(self, passed_s: float) -> float:
        """The share of the history that has come."""
        return min(self.share, self.pace * passed_s)


STORES = tuple(
    SilentStore(pace, share) for pace in (20.0, 5.0, 2.0) for share in (1.0, 0.5, 31.5 / LAYERS)
)


class Way(Protocol):
    """One way to load a history, and what is left to compute when it is given up."""

    def is_waited_for(self, now_s: float, share: float) -> bool:
        """Whether to go on after ``now_s`` seconds, when that share has come."""
        ...

    def left_s(self, share: float) -> float:
        """Seconds of computing what has not come."""
        ...


class ByTokens:
    """Spans of tokens, each of which is of use alone."""

    def __init__(self) -> None:
        self._limit = LoadLimit(
            COMPUTE,
            TokenRange(0, TOKENS),
            byte_count=HISTORY_BYTES,
            step_tokens=TOKENS,
            least_wait_s=0.0,
            now_s=0.0,
        )
        self._loaded = 0

    def is_waited_for(self, now_s: float, share: float) -> bool:
        """As ``Way``."""
        self._limit.look(now_s, int(share * HISTORY_BYTES))
        stop = int(share * SPANS) * TOKENS // SPANS
        if stop > self._loaded:
            self._limit.gain(self._loaded, stop)
            self._loaded = stop
        return self._loaded < TOKENS and self._limit.is_waited_for(self._loaded, TOKENS)

    def left_s(self, share: float) -> float:
        """As ``Way``."""
        return 1.0 - int(share * SPANS) / SPANS


class ByLayers:
    """Layer after layer, none of which is of use without the last one."""

    def __init__(self, *, cap_s: float = float("inf")) -> None:
        self._limit = LayerwiseLimit(
            COMPUTE,
            TOKENS,
            byte_count=HISTORY_BYTES,
            step_tokens=TOKENS,
            least_wait_s=0.0,
            now_s=0.0,
        )
        self._cap_s = cap_s
        self._taken = 0.0

    def is_waited_for(self, now_s: float, share: float) -> bool:
        """As ``Way``."""
        self._limit.look(now_s, int(share * HISTORY_BYTES), was_waiting=True)
        self._limit.take(now_s, share - self._taken)
        self._taken = share
        return share < 1 and now_s < self._cap_s and self._limit.is_waited_for

    def left_s(self, share: float) -> float:
        """As ``Way``."""
        return 0.0 if share >= 1 else 1.0


class ByHiddenLayers(ByLayers):
    """The same of hidden states, where the engine would compute on from the last whole layer."""

    def left_s(self, share: float) -> float:
        """As ``Way``."""
        return 1.0 - int(share * LAYERS) / LAYERS


def ways() -> Iterator[tuple[str, Way]]:
    """Those that are compared, with their names in results."""
    yield "by_tokens", ByTokens()
    yield "by_layers", ByLayers()
    for cap in CAPS:
        yield f"by_layers_capped_{100 * cap:.0f}", ByLayers(cap_s=cap)
    yield "by_hidden_layers", ByHiddenLayers()


def over_computing(way: Way, store: SilentStore) -> float:
    """Seconds until everything is there, where computing all of it takes one."""
    passed_s = 0.0
    while way.is_waited_for(passed_s, store.came(passed_s)):
        passed_s += 1 / LOOKS
    return passed_s + way.left_s(store.came(passed_s))


def run(settings: Settings) -> tuple[Series, ...]:
    """Prints the table of all ways and stores; one sample for each store."""
    samples: dict[str, list[float]] = {name: [] for name, _ in ways()}
    table = new_table("Over computing everything", ("store",), samples)
    for store in STORES:
        for name, way in ways():
            samples[name].append(over_computing(way, store))
        table.add_row(store.name, *(f"{found[-1]:.3f}" for found in samples.values()))
    show(settings.console, table)
    return tuple(
        Series(
            key=f"silence_{name}_max",
            unit="",
            samples=tuple(found),
            summary=Summary.MOST,
            is_figure=f"silence_{name}_max" in FIGURES,
        )
        for name, found in samples.items()
    )
