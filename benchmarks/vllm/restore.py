"""Restoring in real vLLM engines: Cake and HCache.

Every engine is a process of its own; one works at a time. All take the same prompts and are
measured in turn: in float32, where all ways must give the same token, and in bfloat16, where a
random model's tokens depend on the order of sums. The daemon is restarted before each round, so
that what is loaded comes from its device, whose rate is limited.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.benchmark import BenchmarkError, Settings
from benchmarks.interleave import Measured, Rounds, ratios
from benchmarks.report import Series, Summary
from benchmarks.scratch import scratch_folder
from benchmarks.vllm.crowd import Crowd, run_crowd
from benchmarks.vllm.lab import (
    DEVICE_BYTES,
    MIB,
    STEP_TOKENS,
    Lab,
    compared,
    random_prompt,
)
from benchmarks.vllm.shapes import HEADS_MODEL, KV_TOKEN_BYTES, VOCABULARY
from engine_adapters.vllm.settings.support import CAKE_SCHEDULER, HIDDEN_WORKER
from engine_adapters.vllm.testing.tiny_model import make_model

COMPARED_TOKENS = 8
"""Tokens behind the prompt that all ways have to give."""

FIGURES = (
    "cake_vs_best_baseline_balanced",
    "cake_vs_best_baseline_sweep_max",
    "hcache_vs_kv_restore_x",
    "tokens_equal",
    "blocks_leaked",
)
Samples = dict[str, tuple[float, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Length of the restored prompt, rates of the sweep as shares of the balanced one."""

    prompt_tokens: int
    sweep: tuple[float, ...]
    rounds: Rounds
    sweep_rounds: Rounds


FULL = Scale(
    prompt_tokens=4 * 1024 + 4,
    sweep=(1 / 8, 1 / 4, 1 / 2, 2.0, 4.0, 8.0),
    rounds=Rounds(count=7, count_min=5, time_limit_s=200.0),
    sweep_rounds=Rounds(count=5, count_min=5, time_limit_s=200.0),
)
QUICK = Scale(
    prompt_tokens=2 * 1024 + 4,
    sweep=(1 / 2, 8.0),
    rounds=Rounds(count=5, count_min=5, time_limit_s=60.0),
    sweep_rounds=Rounds(count=5, count_min=5, time_limit_s=40.0),
)
WAYS = {"computed": "plain", "loaded": "prefix", "both": "cake"}
"""Ways to get a prompt's states, and the engine of each."""


class Bench:
    """The engines, their prompts, and what was generated."""

    def __init__(
        self,
        settings: Settings,
        scale: Scale,
        folder: Path,
        stack: ExitStack,
        *,
        dtype: str = "float32",
        has_hidden: bool = True,
    ) -> None:
        """``has_hidden`` starts an engine that stores hidden states as well."""
        self._scale = scale
        self._generator = settings.random()
        self._lab = Lab(folder, stack)
        self._model = model = make_model(folder / "model", **HEADS_MODEL)
        limits: dict[str, Any] = {
            "max_model_len": 8192,
            "max_num_batched_tokens": STEP_TOKENS,
            "dtype": dtype,
        }
        self._lab.start("plain", model, mode=None, **limits)
        self._lab.start("prefix", model, mode="prefix", **limits)
        self._lab.start("cake", model, mode="cake", scheduler_cls=CAKE_SCHEDULER, **limits)
        self._has_hidden = has_hidden
        if has_hidden:
            self._lab.start("hcache", model, mode="hcache", worker_cls=HIDDEN_WORKER, **limits)
        self._prompt = self._new_prompt()
        self._tokens: set[tuple[int, ...]] = set()

    def prepare(self) -> float:
        """Stores the prompt in both forms; seconds that computing it takes."""
        hidden = ["hcache"] if self._has_hidden else []
        for name in ("plain", "prefix", "cake", *hidden):
            self._lab.take(name, self._new_prompt())
        for name in ("prefix", *hidden):
            self._lab.store(name, self._prompt)
        return self.computing_s(self._scale.prompt_tokens)

    def computing_s(self, token_count: int) -> float:
        """What computing so many tokens of the prompt takes alone: the least of three."""
        prompt = self._prompt[:token_count]
        return min(self._lab.take("plain", prompt).ttft_s for _ in range(3))

    def compare(self, prefix: str, ways: dict[str, str], rate: int, rounds: Rounds) -> Samples:
        """TTFT of the prompt by each way, at a rate of the device."""
        count = 0

        def take(way: str) -> Measured:
            nonlocal count
            count += 1
            taken = self._lab.take(ways[way], self._prompt, max_tokens=COMPARED_TOKENS)
            self._tokens.add(taken.tokens)
            # What a request has computed at the front is nothing that it found in a cache.
            if taken.cached_tokens == 0 and ways[way] not in ("plain", "cake"):
                raise BenchmarkError(f"nothing was restored by {ways[way]}")
            return {f"{prefix}_{way}": taken.ttft_s}

        stored = [name for name in ways.values() if name != "plain"]
        before = {name: self._lab.loaded_bytes(name) for name in stored}
        samples = compared(
            take,
            ways,
            rounds=rounds,
            generator=self._generator,
            prepare=lambda: self._lab.limit(stored, rate),
        )
        for way, name in ways.items():
            if name != "plain":
                loaded_bytes = self._lab.loaded_bytes(name) - before[name]
                if loaded_bytes == 0:
                    raise BenchmarkError(f"nothing was loaded by {name}")
                samples[f"{prefix}_{way}_bytes"] = (loaded_bytes * len(ways) / count,)
        return samples

    def crowd(self) -> Crowd:
        """Eight requests that are restored at once, with preemptions."""
        self._lab.limit(["cake"], None)
        return run_crowd(self._lab, self._model, self._generator)

    @property
    def tokens_equal(self) -> bool:
        """Whether every way gave the same tokens after the prompt, every time."""
        return len(self._tokens) == 1

    @property
    def blocks_leaked(self) -> float:
        """Blocks that nobody holds and that are not free."""
        return float(self._lab.leaked_blocks())

    def _new_prompt(self) -> list[int]:
        return random_prompt(self._generator, self._scale.prompt_tokens, VOCABULARY)


def best_ratio(samples: Samples, prefix: str) -> tuple[float, ...]:
    """Computing and loading at once over the faster of computing and loading, round by round."""
    alone = zip(samples[f"{prefix}_computed"], samples[f"{prefix}_loaded"], strict=True)
    return ratios(samples[f"{prefix}_both"], [min(pair) for pair in alone])


def measure(settings: Settings, say: Callable[[str], None]) -> tuple[Series, ...]:
    """Everything, the balanced comparison first."""
    scale = QUICK if settings.quick else FULL
    with ExitStack() as stack:
        folder = stack.enter_context(scratch_folder(settings.folder, DEVICE_BYTES + 512 * MIB))
        bench = Bench(settings, scale, folder, stack)
        say("storing the prompt")
        compute_s = bench.prepare()
        balanced = int(scale.prompt_tokens * KV_TOKEN_BYTES / compute_s)
        settings.console.print(
            f"computing {scale.prompt_tokens} tokens takes {compute_s:.2f} s, loading them as long "
            f"at {balanced / 1e6:.1f} MB/s"
        )
        say("computing, loading, both")
        samples = bench.compare("balanced", WAYS, balanced, scale.rounds)
        for share in scale.sweep:
            say(f"sweep of rates: x{share:g}")
            samples |= bench.compare(f"x{share:g}", WAYS, int(share * balanced), scale.sweep_rounds)
        say("hidden states and keys and values")
        ways = {"hidden": "hcache", "kv": "prefix"}
        samples |= bench.compare("slow", ways, balanced // 2, scale.rounds)
        say("eight requests at once")
        return series(samples, scale, bench, bench.crowd())


def measure_bfloat16(settings: Settings, say: Callable[[str], None]) -> tuple[Series, ...]:
    """The balanced comparison and that of both states, in bfloat16."""
    scale = QUICK if settings.quick else FULL
    with ExitStack() as stack:
        folder = stack.enter_context(scratch_folder(settings.folder, DEVICE_BYTES + 512 * MIB))
        bench = Bench(settings, scale, folder, stack, dtype="bfloat16")
        say("storing the prompt in bfloat16")
        balanced = int(scale.prompt_tokens * KV_TOKEN_BYTES / 2 / bench.prepare())
        say("computing, loading, both in bfloat16")
        samples = bench.compare("bfloat16", WAYS, balanced, scale.rounds)
        say("hidden states and keys and values in bfloat16")
        ways = {"hidden": "hcache", "kv": "prefix"}
        samples |= bench.compare("bfloat16_slow", ways, balanced // 2, scale.rounds)
        return bfloat16_series(samples)


def bfloat16_series(samples: Samples) -> tuple[Series, ...]:
    """Both ratios, then every sample."""
    cake = Series(
        key="bfloat16_cake_vs_best_baseline",
        unit="ratio",
        samples=best_ratio(samples, "bfloat16"),
    )
    hidden = Series(
        key="bfloat16_hcache_vs_kv_restore_x",
        unit="ratio",
        samples=ratios(samples["bfloat16_slow_kv"], samples["bfloat16_slow_hidden"]),
    )
    return (cake, hidden, *details(samples))


def series(samples: Samples, scale: Scale, bench: Bench, crowd: Crowd) -> tuple[Series, ...]:
    """The figures, then every sample."""
    sweep = [best_ratio(samples, f"x{share:g}") for share in scale.sweep]
    figures: Sequence[Series] = (
        Series(
            key="cake_vs_best_baseline_balanced",
            unit="ratio",
            samples=best_ratio(samples, "balanced"),
            is_figure=True,
        ),
        Series(
            key="cake_vs_best_baseline_sweep_max",
            unit="ratio",
            samples=tuple(sorted(one)[len(one) // 2] for one in map(list, sweep)),
            summary=Summary.MOST,
            is_figure=True,
        ),
        Series(
            key="hcache_vs_kv_restore_x",
            unit="ratio",
            samples=ratios(samples["slow_kv"], samples["slow_hidden"]),
            is_figure=True,
        ),
        Series(
            key="hcache_over_kv_bytes",
            unit="ratio",
            samples=ratios(samples["slow_hidden_bytes"], samples["slow_kv_bytes"]),
        ),
        Series(
            key="tokens_equal",
            unit="1 or 0",
            samples=(float(bench.tokens_equal), float(crowd.tokens_equal)),
            summary=Summary.LEAST,
            is_figure=True,
        ),
        Series(key="blocks_leaked", unit="count", samples=(bench.blocks_leaked,), is_figure=True),
        Series(key="crowd_preemptions", unit="count", samples=(crowd.preemptions,)),
        Series(key="crowd_jumps", unit="count", samples=(crowd.jumps,)),
        Series(key="crowd_restored_tokens", unit="count", samples=(crowd.restored_tokens,)),
    )
    ratio_series = (
        Series(key=f"cake_vs_best_x{share:g}", unit="ratio", samples=one)
        for share, one in zip(scale.sweep, sweep, strict=True)
    )
    return (*figures, *ratio_series, *details(samples))


def details(samples: Samples) -> list[Series]:
    """Every sample: seconds, and bytes that a restoration has loaded."""
    return [
        Series(key=key, unit="bytes", samples=values)
        if key.endswith("_bytes")
        else Series(key=f"{key}_s", unit="s", samples=values)
        for key, values in samples.items()
    ]
