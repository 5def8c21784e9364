"""How much the benchmark of linked prompts measures."""

from dataclasses import dataclass

from benchmarks.interleave import Rounds
from benchmarks.pic.facts.judged import NEEDED
from benchmarks.pic.facts.ways import WAYS
from engine_adapters.runner.model.random_model import RandomModelShape

FULL_METHOD = "full"
SINK = "sink"
"""``naive`` over entries that were computed after a sink."""

METHODS = {
    "naive": "naive",
    FULL_METHOD: "full",
    **{f"cacheblend{r}": f"cacheblend-{r}" for r in (1, 5, 15, 30)},
    **{f"attnlink{k}": f"attnlink-{k}" for k in (2, 8, 16, 20, 32)},
    SINK: "naive",
    "query16": "query-16",
    "split16": "split-16",
}
"""What is measured, and its method of linking."""
OF_FIGURES = ("naive", FULL_METHOD, "cacheblend15", "attnlink16")
"""Those that figures of times are about, and the two that others lie between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """A model, and the lengths of the prompts that are linked for it.

    A prompt of ``n`` tokens has entries of ``entry_tokens``, the first of which make room for a
    question of ``question_tokens``. The states of the shortest prompt must not fit into
    ``cold_dram_bytes``. ``methods`` are keys of METHODS. Answers are about ``libraries``
    libraries, by ``ways``, keys of WAYS.
    """

    shape: RandomModelShape
    lengths: tuple[int, ...]
    rounds: Rounds
    libraries: int
    ways: tuple[str, ...] = tuple(WAYS)
    methods: tuple[str, ...] = tuple(METHODS)
    entry_tokens: int = 512
    question_tokens: int = 32
    sink_tokens: int = 16
    slab_bytes: int = 4 * 1024 * 1024
    cold_dram_bytes: int = 16 * 1024 * 1024
    warm_dram_bytes: int
    device_bytes: int
    scratch_bytes: int


FULL = Scale(
    # 25 million parameters; a little more positions than the longest prompt has tokens.
    shape=RandomModelShape(position_count=33_792),
    lengths=(1024, 2048, 4096, 8192, 16_384, 32_768),
    rounds=Rounds(count=5, count_min=3, time_limit_s=7200),
    libraries=80,
    warm_dram_bytes=4 * 1024 * 1024 * 1024,
    device_bytes=2 * 1024 * 1024 * 1024,
    scratch_bytes=9_000_000_000,
)

QUICK = Scale(
    shape=RandomModelShape(layer_count=4, position_count=8192),
    lengths=(1024, 2048, 4096),
    rounds=Rounds(count=3, count_min=2, time_limit_s=150),
    libraries=20,
    ways=NEEDED,
    warm_dram_bytes=512 * 1024 * 1024,
    device_bytes=512 * 1024 * 1024,
    slab_bytes=2 * 1024 * 1024,
    cold_dram_bytes=8 * 1024 * 1024,
    scratch_bytes=3_000_000_000,
)
