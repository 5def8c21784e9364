"""All settings one after the other, and the figures that come out of them."""

from contextlib import ExitStack

import torch

from benchmarks.benchmark import Settings
from benchmarks.document import TOKENIZER_BYTES, corpus
from benchmarks.report import Series, Summary
from benchmarks.restore.measured.found import Found
from benchmarks.restore.measured.lab import SettingLab
from benchmarks.restore.measured.scale import FULL, QUICK, Balance, Scale
from benchmarks.restore.measured.show import show_found
from benchmarks.restore.measured.storage import kv_over_stored
from benchmarks.scratch import scratch_folder
from engine_adapters.restore import LAYER_MODES, LayerSchedule, Mode, Source
from engine_adapters.runner.model import Model
from engine_adapters.runner.random_model import write_random_model

FIGURES = (
    "hcache_vs_bound_max",
    "hcache_vs_best_single_max",
    "hcache_vs_kv_balanced_x",
    "storage_per_token_kv_over_hcache_min",
    "storage_per_token_kv_over_hcache_max",
    "tokens_equal",
)
FIGURES_CONTENDED = ("hcache_vs_bound_max", "hcache_vs_best_single_max", "tokens_equal")
SCRATCH_BYTES = 9_000_000_000
COSTS = ("io_hidden", "io_kv", "compute", "project", "load")


def run(settings: Settings) -> tuple[Series, ...]:
    """The measured part at its two sizes."""
    return measure(settings, QUICK if settings.quick else FULL)


def run_contended(settings: Settings) -> tuple[Series, ...]:
    """Those of its settings in which reads and computation want the same cores."""
    return measure(settings, (QUICK if settings.quick else FULL).contended())


def measure(settings: Settings, scale: Scale) -> tuple[Series, ...]:
    """Restores in every setting; raises BenchmarkError."""
    threads = torch.get_num_threads()
    with ExitStack() as stack:
        stack.callback(torch.set_num_threads, threads)
        folder = stack.enter_context(scratch_folder(settings.folder, SCRATCH_BYTES))
        write_random_model(folder / "model", scale.shape, [corpus()[:TOKENIZER_BYTES]])
        model = Model.from_directory(folder / "model")
        found = []
        for setting in scale.settings:
            with scratch_folder(folder, 0) as place:
                found.append(SettingLab(setting, scale, model, place, settings).measure())
            show_found(settings.console, found[-1])
        with scratch_folder(folder, 0) as place:
            stored = kv_over_stored(place)
    details = [series for one in found for series in details_of(one)]
    return (*figures_of(found, stored), *details)


def figures_of(found: list[Found], stored: dict[str, float]) -> list[Series]:
    """One sample for each setting, and for each model of ``stored``."""
    balanced = [
        one.over(Mode.KV, Mode.HCACHE) for one in found if one.setting.balance is Balance.BALANCED
    ]
    ratios = tuple(stored.values())
    rows = (
        ("hcache_vs_bound_max", "ratio", [one.hcache_vs_bound for one in found], Summary.MOST),
        (
            "hcache_vs_best_single_max",
            "ratio",
            [one.over_best_single() for one in found],
            Summary.MOST,
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
        samples += _layers(mode, (found.schedules[mode],))
    samples.append(("bound", "tokens/s", tuple(token_count / each for each in found.bounds_s)))
    samples += _layers("bound", found.bounds)
    samples += [
        ("hcache_vs_beside", "ratio", found.over_beside()),
        ("hcache_waited_vs_bound", "ratio", found.waited_over_bound()),
        ("hcache_worked_vs_costs", "ratio", found.worked_over_costs()),
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
    name: str, schedules: tuple[LayerSchedule, ...]
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
