"""What the times of linked prompts say. Pure."""

from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np

from benchmarks.interleave import ratios
from benchmarks.report import Series, Summary

FIGURES = (
    "ttft_cacheblend15_over_attnlink16_x",
    "ttft_attnlink_linear_r2",
    "quadratic_coefficient_share",
    "attnlink_vs_bound",
    "steps_per_link",
    "tokens_equal",
)
SLOW, FAST = "cacheblend15", "attnlink16"


def ttft_key(name: str, place: str, length: int) -> str:
    """The series of a method at one length; ``place`` is ``warm`` or ``cold``."""
    return f"{name}_{place}_{length}_ttft_s"


def linear_r2(sizes: Sequence[float], times_s: Sequence[float]) -> float:
    """How much of the variance of times a line through them explains; 1 is all."""
    slope, constant = np.polyfit(sizes, times_s, 1)
    left = np.asarray(times_s) - (slope * np.asarray(sizes) + constant)
    spread = np.asarray(times_s) - np.mean(times_s)
    return float(1 - np.sum(left**2) / np.sum(spread**2))


def quadratic_share(sizes: Sequence[float], times_s: Sequence[float]) -> float:
    """Which share of the longest time the square of its size takes in a parabola; at least 0."""
    square, linear, constant = np.polyfit(sizes, times_s, 2)
    longest = max(sizes)
    whole = square * longest**2 + linear * longest + constant
    return max(0.0, float(square * longest**2 / whole))


def figures_of(
    samples: Mapping[str, Sequence[float]],
    lengths: Sequence[int],
    *,
    equal: Sequence[bool],
) -> tuple[Series, ...]:
    """All figures; ``equal`` says of each comparison of tokens whether they were the same."""
    longest = max(lengths)
    slow = samples[ttft_key(SLOW, "warm", longest)]
    fast = samples[ttft_key(FAST, "warm", longest)]
    times_s = [median(samples[ttft_key(FAST, "warm", length)]) for length in lengths]
    found = {
        "ttft_cacheblend15_over_attnlink16_x": ratios(slow, fast),
        "ttft_attnlink_linear_r2": (linear_r2(lengths, times_s),),
        "quadratic_coefficient_share": (quadratic_share(lengths, times_s),),
        "attnlink_vs_bound": tuple(samples[f"{FAST}_cold_{longest}_over_bound"]),
        "steps_per_link": tuple(samples[f"{FAST}_warm_{longest}_steps"]),
    }
    units = {"steps_per_link": "steps"}
    figures = [
        Series(key=key, unit=units.get(key, "x"), samples=values, is_figure=True)
        for key, values in found.items()
    ]
    tokens_equal = Series(
        key="tokens_equal",
        unit="1: all",
        samples=tuple(float(one) for one in equal),
        summary=Summary.LEAST,
        is_figure=True,
    )
    return (*figures, tokens_equal)


def details_of(samples: Mapping[str, Sequence[float]]) -> tuple[Series, ...]:
    """The median of every time, and its least and most."""
    found: list[Series] = []
    for key, values in samples.items():
        unit = "s" if key.endswith("_s") else "steps" if key.endswith("_steps") else "x"
        found.append(Series(key=key, unit=unit, samples=tuple(values)))
        if key.endswith("_ttft_s"):
            for summary, suffix in ((Summary.LEAST, "min"), (Summary.MOST, "max")):
                series = Series(
                    key=f"{key}_{suffix}", unit=unit, samples=tuple(values), summary=summary
                )
                found.append(series)
    return tuple(found)
