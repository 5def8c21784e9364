from dataclasses import dataclass, replace

from benchmarks.vllm.crowd import Crowd
from benchmarks.vllm.restore import (
    FIGURES,
    QUICK,
    Samples,
    best_ratio,
    bfloat16_series,
    series,
)


@dataclass(frozen=True, slots=True)
class Finished:
    """What is left of a bench when all was measured."""

    tokens_equal: bool = True
    blocks_leaked: float = 0.0


CROWD = Crowd(tokens_equal=True, preemptions=5.0, jumps=8.0, restored_tokens=5000.0)


def samples() -> Samples:
    ways = {"computed": (2.0, 4.0), "loaded": (3.0, 3.0), "both": (1.0, 1.5)}
    prefixes = ["balanced", *(f"x{share:g}" for share in QUICK.sweep)]
    measured = {f"{prefix}_{way}": values for prefix in prefixes for way, values in ways.items()}
    return measured | {
        "slow_kv": (4.0, 4.0),
        "slow_hidden": (2.0, 2.0),
        "slow_kv_bytes": (4096.0,),
        "slow_hidden_bytes": (2048.0,),
    }


def test_baseline_is_the_faster_one_of_each_round() -> None:
    assert best_ratio(samples(), "balanced") == (0.5, 0.5)


def test_figures_are_those_that_are_promised() -> None:
    found = series(samples(), QUICK, Finished(), CROWD)  # type: ignore[arg-type]
    figures = {one.key: one.value for one in found if one.is_figure}
    assert sorted(figures) == sorted(FIGURES)
    assert figures["hcache_vs_kv_restore_x"] == 2.0
    others = {one.key: (one.value, one.unit) for one in found if not one.is_figure}
    assert others["hcache_over_kv_bytes"] == (0.5, "ratio")
    assert others["slow_kv_bytes"] == (4096.0, "bytes")
    assert others["slow_kv_s"] == (4.0, "s")


def test_tokens_of_all_comparisons_have_to_be_equal() -> None:
    def equal(bench: Finished, crowd: Crowd) -> float:
        found = series(samples(), QUICK, bench, crowd)  # type: ignore[arg-type]
        return next(one.value for one in found if one.key == "tokens_equal")

    assert equal(Finished(), CROWD) == 1.0
    assert equal(Finished(), replace(CROWD, tokens_equal=False)) == 0.0
    assert equal(Finished(tokens_equal=False), CROWD) == 0.0


def test_sweep_publishes_its_worst_rate() -> None:
    worse = samples() | {f"x{QUICK.sweep[0]:g}_both": (4.0, 6.0)}
    found = series(worse, QUICK, Finished(), CROWD)  # type: ignore[arg-type]
    figures = {one.key: one.value for one in found if one.is_figure}
    assert figures["cake_vs_best_baseline_sweep_max"] == 2.0


def test_bfloat16_has_ratios_of_its_own() -> None:
    measured: dict[str, tuple[float, ...]] = {
        f"bfloat16_{way}": (2.0,) for way in ("computed", "loaded")
    }
    measured |= {
        "bfloat16_both": (1.0,),
        "bfloat16_slow_kv": (4.0,),
        "bfloat16_slow_hidden": (2.0,),
    }
    cake, hidden, *samples = bfloat16_series(measured)
    assert (cake.value, hidden.value) == (0.5, 2.0)
    assert len(samples) == len(measured)
