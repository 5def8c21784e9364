"""All settings one after the other, and the figures that come out of them."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from benchmarks.benchmark import Settings
from benchmarks.core_split import core_split
from benchmarks.kit.scratch_model import scratch_model, torch_threads
from benchmarks.report import Series, Summary
from benchmarks.restore.measured.found import Found
from benchmarks.restore.measured.lab import SettingLab
from benchmarks.restore.measured.restored_layers import RestoredLayers
from benchmarks.restore.measured.scale import FULL, QUICK, Balance, Scale
from benchmarks.restore.measured.show import show_found
from benchmarks.restore.measured.storage import kv_over_stored
from benchmarks.scratch import scratch_folder
from engine_adapters.restore import LAYER_MODES, LayerSchedule, Mode, Source

FIGURES = (
    "hcache_vs_bound_max",
    "hcache_vs_best_single_max",
    "auto_vs_best_single_max",
    "hcache_vs_kv_balanced_x",
    "storage_per_token_kv_over_hcache_min",
    "storage_per_token_kv_over_hcache_max",
    "tokens_equal",
)
FIGURES_SOME = (
    "hcache_vs_bound_max",
    "hcache_vs_best_single_max",
    "auto_vs_best_single_max",
    "tokens_equal",
)
"""Of a part that has some of the settings."""
FIGURES_SPLIT = tuple(f"split_{key}" for key in FIGURES_SOME)
SCRATCH_BYTES = 9_000_000_000
COSTS = ("io_hidden", "io_kv", "compute", "project", "load")


def run(settings: Settings) -> tuple[Series, ...]:
    """The measured part at its two sizes."""
    return measure(settings, QUICK if settings.quick else FULL)


def run_contended(settings: Settings) -> tuple[Series, ...]:
    """Those of its settings in which reads and computation want the same cores."""
    return measure(settings, (QUICK if settings.quick else FULL).contended())


def run_compute_rich(settings: Settings) -> tuple[Series, ...]:
    """Those of its settings in which layers are worth recomputing."""
    return measure(settings, (QUICK if settings.quick else FULL).compute_rich())


def run_split(settings: Settings) -> tuple[Series, ...]:
    """Bandwidths with a core for computing and one for everything else."""
    found, _ = _found(settings, (QUICK if settings.quick else FULL).split())
    figures = [one for one in figures_of(found, {}) if f"split_{one.key}" in FIGURES_SPLIT]
    details = [series for one in found for series in details_of(one)]
    return tuple(replace(one, key=f"split_{one.key}") for one in (*figures, *details))


def measure(settings: Settings, scale: Scale) -> tuple[Series, ...]:
    """Restores in every setting; raises BenchmarkError."""
    found, stored = _found(settings, scale)
    details = [series for one in found for series in details_of(one)]
    return (*figures_of(found, stored), *details)


def _found(settings: Settings, scale: Scale) -> tuple[list[Found], dict[str, float]]:
    """Every setting's, and what each model's layouts take of a device."""
    with ExitStack() as stack:
        split = stack.enter_context(core_split()) if scale.is_split else None
        stack.enter_context(torch_threads())
        folder, model = stack.enter_context(
            scratch_model(settings, scale.shape, scratch_bytes=SCRATCH_BYTES)
        )
        found = []
        for setting in scale.settings:
            with scratch_folder(folder, 0) as place:
                found.append(SettingLab(setting, scale, model, place, settings, split).measure())
            show_found(settings.console, found[-1])
        with scratch_folder(folder, 0) as place:
            stored = kv_over_stored(place)
    return found, stored


def figures_of(found: list[Found], stored: dict[str, float]) -> list[Series]:
    """One sample for each setting, and for each model of ``stored``."""
    balanced = [
        one.over(Mode.KV, Mode.HCACHE) for one in found if one.setting.balance is Balance.BALANCED
    ]
    ratios = tuple(stored.values())
    rows = (
        (
            "hcache_vs_bound_max",
            "ratio",
            [one.vs_bound(Mode.HCACHE) for one in found],
            Summary.MOST,
        ),
        *(
            (
                f"{mode}_vs_best_single_max",
                "ratio",
                [one.over_best_single(mode) for one in found],
                Summary.MOST,
            )
            for mode in (Mode.HCACHE, Mode.AUTO)
        ),
        ("hcache_vs_kv_balanced_x", "ratio", balanced, Summary.LEAST),
        ("storage_per_token_kv_over_hcache_min", "ratio", ratios, Summary.LEAST),
        ("storage_per_token_kv_over_hcache_max", "ratio", ratios, Summary.MOST),
        ("tokens_equal", "all", [float(one.tokens_equal) for one in found], Summary.LEAST),
    )
    return [
        Series(key=key, unit=unit, samples=tuple(samples), summary=summary, is_figure=True)
        for key, unit, samples, summary in rows
        if samples
    ]


def details_of(found: Found) -> list[Series]:
    """Speeds, ratios to the bound and schedules of all modes; the bound, its partition, costs."""
    token_count = found.setting.token_count
    samples: list[tuple[str, str, tuple[float, ...]]] = []
    for mode in LAYER_MODES:
        speeds = tuple(token_count / seconds for seconds in found.seconds[mode])
        samples.append((mode, "tokens/s", speeds))
        samples.append((f"{mode}_vs_bound", "ratio", found.over_bound(mode)))
        samples += _layers(f"{mode}_planned", (found.schedules[mode],))
        samples += _layers(mode, found.restored[mode])
    for mode in (Mode.HCACHE, Mode.AUTO):
        samples.append((f"{mode}_vs_best_single", "ratio", (found.over_best_single(mode),)))
    samples.append(("bound", "tokens/s", tuple(token_count / each for each in found.bounds_s)))
    samples += _layers("bound", found.bounds)
    samples += [
        ("hcache_vs_beside", "ratio", found.over_beside()),
        ("hcache_waited_vs_bound", "ratio", found.waited_over_bound()),
        ("hcache_worked_vs_costs", "ratio", found.worked_over_costs()),
        ("hcache_made_vs_costs", "ratio", found.made_over_costs()),
    ]
    if noise := found.noise():
        samples.append(("hcache_vs_alike", "ratio", noise))
    samples += [
        ("device_limit", "MB/s", (found.device_bytes_per_s / 1e6,)),
        ("device_rate_reached", "ratio", found.device_rate_reached()),
        ("project_drift", "ratio", found.drift()),
    ]
    for name in COSTS:
        milliseconds = tuple(1000 * getattr(costs, f"{name}_s") for costs in found.costs)
        samples.append((name, "ms", milliseconds))
    samples += _slower(found)
    return [
        Series(key=f"{found.setting.name}_{name}", unit=unit, samples=values)
        for name, unit, values in samples
    ]


def _slower(found: Found) -> list[tuple[str, str, tuple[float, ...]]]:
    """Costs beside the other side over those that each side has alone, round by round."""
    pairs = list(zip(found.beside, found.costs, strict=True))
    slower = {
        "hidden_beside_project": [one.hidden_beside_project_s / a.io_hidden_s for one, a in pairs],
        "kv_beside_project": [one.kv_beside_project_s / a.io_kv_s for one, a in pairs],
        "hidden_beside_compute": [one.hidden_beside_compute_s / a.io_hidden_s for one, a in pairs],
        "project_beside_hidden": [one.project_beside_hidden_s / a.project_s for one, a in pairs],
        "compute_beside_hidden": [one.compute_slowdown for one, _ in pairs],
    }
    return [(f"{name}_slower", "ratio", tuple(values)) for name, values in slower.items()]


def _layers(
    name: str, schedules: Sequence[LayerSchedule] | Sequence[RestoredLayers]
) -> list[tuple[str, str, tuple[float, ...]]]:
    """How many layers come from each source."""
    return [
        (
            f"{name}_{source}_layers",
            "layers",
            tuple(float(schedule.count(source)) for schedule in schedules),
        )
        for source in Source
    ]
