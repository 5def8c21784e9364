"""Conversations that wait for each other: AttentionStore, LRU without hints, and recomputing.

Figures 14 to 17. DRAM holds an eighth of the working set, and the device is as slow as computing
the new tokens of a turn; the ``DEVICES`` are slower.
"""

from collections.abc import Iterable
from pathlib import Path

from benchmarks.benchmark import BenchmarkError, Settings
from benchmarks.conversations.scale import Scale
from benchmarks.conversations.turns_lab import LRU, OURS, RECOMPUTE, TurnsLab
from benchmarks.interleave import Group, interleave, ratios
from benchmarks.report import Series, Summary
from engine_adapters.runner.model.model import Model

FIGURES = (
    "ttft_vs_recompute_x",
    "ttft_vs_lru_x",
    "prefill_tokens_per_s_x",
    "dram_hit_share",
    "tokens_equal",
)
DEVICES = {"slower": 2.0, "slowest": 3.0}
"""Times as long as computing the new tokens that loading a history takes: computing does not hide
all of that."""
DEVICE_FIGURES = tuple(f"ttft_vs_lru_{name}_x" for name in DEVICES)


def measure(settings: Settings, scale: Scale, model: Model, folder: Path) -> tuple[Series, ...]:
    """Whole workloads in each way, round by round; raises BenchmarkError."""
    lab = TurnsLab(settings, scale, model, folder / "turns")
    group = [lab.alternative("turns", way, 1.0) for way in (OURS, LRU, RECOMPUTE)]
    samples = _samples(settings, scale, lab, [group])
    return (*_figures(samples), *_details(samples), *_settings("turns", lab, 1.0))


def measure_devices(
    settings: Settings, scale: Scale, model: Model, folder: Path
) -> tuple[Series, ...]:
    """Both kinds of keeping on slower devices, round by round; raises BenchmarkError."""
    lab = TurnsLab(settings, scale, model, folder / "devices")
    groups = [
        [lab.alternative(name, way, load_share) for way in (OURS, LRU)]
        for name, load_share in DEVICES.items()
    ]
    samples = _samples(settings, scale, lab, groups)
    if not all(value for key in samples if key.endswith("_equal") for value in samples[key]):
        raise BenchmarkError("on a slower device a conversation said something else")
    found: list[Series] = []
    for (name, load_share), figure in zip(DEVICES.items(), DEVICE_FIGURES, strict=True):
        lru, ours = samples[f"{name}_lru_ttft_s"], samples[f"{name}_ours_ttft_s"]
        found += [_figure(figure, ratios(lru, ours)), *_settings(name, lab, load_share)]
    return (*found, *_details(samples))


def _samples(
    settings: Settings, scale: Scale, lab: TurnsLab, groups: Iterable[Group]
) -> dict[str, tuple[float, ...]]:
    with settings.console.status("conversations") as status:
        status.update("conversations: first turns")
        lab.save()
        return interleave(
            list(groups),
            rounds=scale.turn_rounds,
            generator=settings.random(),
            announce=lambda text: status.update(f"conversations: {text}"),
            prepare=lab.begin_round,
        )


def _figures(samples: dict[str, tuple[float, ...]]) -> tuple[Series, ...]:
    ours, rates = samples["turns_ours_ttft_s"], "prefill_tokens_per_s"
    equal = tuple(
        value for way in (OURS, LRU, RECOMPUTE) for value in samples[f"turns_{way}_equal"]
    )
    return (
        _figure("ttft_vs_recompute_x", ratios(samples["turns_recompute_ttft_s"], ours)),
        _figure("ttft_vs_lru_x", ratios(samples["turns_lru_ttft_s"], ours)),
        _figure(
            "prefill_tokens_per_s_x",
            ratios(samples[f"turns_ours_{rates}"], samples[f"turns_recompute_{rates}"]),
        ),
        _figure("dram_hit_share", samples["turns_ours_dram_share"]),
        Series(
            key="tokens_equal",
            unit="1 or 0",
            samples=equal,
            summary=Summary.LEAST,
            is_figure=True,
        ),
    )


def _details(samples: dict[str, tuple[float, ...]]) -> tuple[Series, ...]:
    units = {
        "ttft_s": "s",
        "gpu_s": "s",
        "prefill_tokens_per_s": "tokens/s",
        "ties": "talks",
        "equal": "1 or 0",
    }
    return tuple(
        Series(
            key=key,
            unit=next((unit for end, unit in units.items() if key.endswith(end)), "x"),
            samples=values,
        )
        for key, values in samples.items()
    )


def _settings(name: str, lab: TurnsLab, load_share: float) -> tuple[Series, ...]:
    limit = lab.bytes_per_s(load_share) / 1e6
    return (
        Series(key=f"{name}_working_set", unit="MB", samples=(lab.working_bytes / 1e6,)),
        Series(key=f"{name}_device_limit", unit="MB/s", samples=(limit,)),
    )


def _figure(key: str, samples: tuple[float, ...]) -> Series:
    return Series(key=key, unit="x", samples=samples, is_figure=True)
