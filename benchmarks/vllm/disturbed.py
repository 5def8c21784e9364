"""Some rates of the sweep beside a process that keeps one core busy half of the time.

Cake is compared with the faster one of computing and loading alone in every round, and with the
best meeting point by what these two took in that round.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median

from benchmarks.benchmark import Settings
from benchmarks.cake.traces import ComputeTrace, oracle_s
from benchmarks.interleave import Rounds, ratios
from benchmarks.kit.other_work import other_work
from benchmarks.report import Series, Summary
from benchmarks.scratch import scratch_folder
from benchmarks.vllm import restore
from benchmarks.vllm.lab import DEVICE_BYTES, MIB
from benchmarks.vllm.restore import WAYS, Bench, Samples, best_ratio, details
from benchmarks.vllm.shapes import KV_TOKEN_BYTES
from engine_adapters.restore.testing.oracle import elapsed_s
from engine_adapters.vllm.testing.engine_arguments import CHUNK_TOKENS

FIGURES = ("disturbed_cake_vs_best_max", "disturbed_cake_vs_oracle_max", "disturbed_tokens_equal")
TRACE_POINTS = 4
"""Lengths of a prompt by which the oracle knows when how many tokens were computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """Rates as shares of the balanced one, and how often each way is taken at each."""

    shares: tuple[float, ...]
    rounds: Rounds


FULL = Cells(
    shares=(1 / 2, 1.0, 2.0, 8.0), rounds=Rounds(count=20, count_min=10, time_limit_s=150.0)
)
QUICK = Cells(shares=(1.0, 8.0), rounds=Rounds(count=3, count_min=3, time_limit_s=1.0))


def measure(settings: Settings, say: Callable[[str], None]) -> tuple[Series, ...]:
    """Every cell; raises BenchmarkError."""
    scale = restore.QUICK if settings.quick else restore.FULL
    cells = QUICK if settings.quick else FULL
    with ExitStack() as stack:
        folder = stack.enter_context(scratch_folder(settings.folder, DEVICE_BYTES + 512 * MIB))
        bench = Bench(settings, scale, folder, stack, has_hidden=False)
        say("storing the prompt")
        compute_s = bench.prepare()
        trace = trace_of(bench.computing_s, scale.prompt_tokens)
        balanced = scale.prompt_tokens * KV_TOKEN_BYTES / compute_s
        samples: Samples = {}
        with other_work(settings.seed):
            for share in cells.shares:
                say(f"beside other work: x{share:g}")
                samples |= bench.compare(name_of(share), WAYS, int(share * balanced), cells.rounds)
        return series(samples, cells, trace, is_equal=bench.tokens_equal)


def trace_of(computing_s: Callable[[int], float], prompt_tokens: int) -> ComputeTrace:
    """When how much of the prompt is computed, by prompts of several lengths."""
    lengths = [prompt_tokens * point // TRACE_POINTS for point in range(1, TRACE_POINTS + 1)]
    return ComputeTrace(tuple(computing_s(length) for length in lengths), tuple(lengths))


def best_s(trace: ComputeTrace, *, computed_s: float, loaded_s: float) -> float:
    """The best meeting point, by what both sides took alone to the first token.

    ``trace`` says in which proportion the tokens share what computing took.
    """
    prompt_tokens = trace.positions[-1]
    # The last token is always computed.
    chunk_count = (prompt_tokens - 1) // CHUNK_TOKENS
    scale = computed_s / trace.times_s[-1]
    scaled = ComputeTrace(tuple(scale * time_s for time_s in trace.times_s), trace.positions)
    rest_s = computed_s - scaled.at_s(chunk_count * CHUNK_TOKENS)
    chunk_s = max(0.0, loaded_s - rest_s) / chunk_count
    return oracle_s(
        scaled,
        elapsed_s([chunk_s] * chunk_count),
        chunk_tokens=CHUNK_TOKENS,
        alone_s=computed_s,
        rest_s=rest_s,
    )


def over_oracle(samples: Samples, prefix: str, trace: ComputeTrace) -> tuple[float, ...]:
    """Computing and loading at once over the best meeting point, round by round."""
    alone = zip(samples[f"{prefix}_computed"], samples[f"{prefix}_loaded"], strict=True)
    best = [
        best_s(trace, computed_s=computed_s, loaded_s=loaded_s) for computed_s, loaded_s in alone
    ]
    return ratios(samples[f"{prefix}_both"], best)


def series(
    samples: Samples, cells: Cells, trace: ComputeTrace, *, is_equal: bool
) -> tuple[Series, ...]:
    """The worst round of all cells, the worst cell's median over the oracle, and every sample."""
    over_best = {share: best_ratio(samples, name_of(share)) for share in cells.shares}
    over_best_meeting = {
        share: over_oracle(samples, name_of(share), trace) for share in cells.shares
    }
    return (
        Series(
            key="disturbed_cake_vs_best_max",
            unit="ratio",
            samples=tuple(ratio for each in over_best.values() for ratio in each),
            summary=Summary.MOST,
            is_figure=True,
        ),
        Series(
            key="disturbed_cake_vs_oracle_max",
            unit="ratio",
            samples=tuple(median(each) for each in over_best_meeting.values()),
            summary=Summary.MOST,
            is_figure=True,
        ),
        Series(
            key="disturbed_tokens_equal",
            unit="1 or 0",
            samples=(float(is_equal),),
            summary=Summary.LEAST,
            is_figure=True,
        ),
        *_cells("best", over_best),
        *_cells("oracle", over_best_meeting),
        *details(samples),
    )


def name_of(share: float) -> str:
    """Begins the keys of a cell's samples."""
    return f"disturbed_x{share:g}"


def _cells(peer: str, found: Mapping[float, tuple[float, ...]]) -> list[Series]:
    return [
        Series(key=f"{name_of(share)}_cake_vs_{peer}", unit="ratio", samples=each)
        for share, each in found.items()
    ]
