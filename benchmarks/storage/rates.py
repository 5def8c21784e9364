"""From what the rounds measured to the series of a part. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from benchmarks.interleave import ratios
from benchmarks.report import Series

Rates = Mapping[str, tuple[float, ...]]
"""Samples by name, one for each counted round."""


def ratio(key: str, rates: Rates, ours: str, peer: str, *, is_figure: bool = False) -> Series:
    """Ours over the peer's, formed in each round."""
    return Series(
        key=key, unit="ratio", samples=ratios(rates[ours], rates[peer]), is_figure=is_figure
    )


def measured(rates: Rates, names: Iterable[str]) -> tuple[Series, ...]:
    """The rates themselves, in GB/s."""
    return tuple(Series(key=f"{name}_gb_per_s", unit="GB/s", samples=rates[name]) for name in names)


def lowest(key: str, among: Sequence[Series], *, is_figure: bool = False) -> Series:
    """The series with the lowest value, under a key of its own: more would be better."""
    return replace(min(among, key=lambda one: one.value), key=key, is_figure=is_figure)


def highest(key: str, among: Sequence[Series], *, is_figure: bool = False) -> Series:
    """The series with the highest value, under a key of its own: less would be better."""
    return replace(max(among, key=lambda one: one.value), key=key, is_figure=is_figure)
