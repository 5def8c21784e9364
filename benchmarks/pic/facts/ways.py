"""The ways to link that are judged, and an answer of one of them. Pure."""

from dataclasses import dataclass

from benchmarks.pic.facts.library import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How a prompt is linked: its method, and of which entries."""

    method: str
    is_fixed: bool = False
    has_sink: bool = False


WAYS = {
    "full": Way(method="full"),
    "naive": Way(method="naive"),
    **{f"cacheblend{r}": Way(method=f"cacheblend-{r}") for r in (1, 5, 15, 30)},
    **{f"attnlink{k}": Way(method=f"attnlink-{k}") for k in (2, 8, 16, 20, 32)},
    "query16": Way(method="query-16"),
    "split16": Way(method="split-16"),
    "sink": Way(method="naive", has_sink=True),
    "sink_attnlink16": Way(method="attnlink-16", has_sink=True),
    "fixed_naive": Way(method="naive", is_fixed=True),
    "fixed_attnlink16": Way(method="attnlink-16", is_fixed=True),
}
"""What is judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One prompt linked one way; ``computed_tokens`` of it were computed."""

    kind: Kind
    is_right: bool
    ttft_s: float
    computed_tokens: int
