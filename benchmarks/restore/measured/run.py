"""All settings one after the other, and the figures that come out of them."""

from contextlib import ExitStack

import torch

from benchmarks.benchmark import Settings
from benchmarks.document import TOKENIZER_BYTES, corpus
from benchmarks.report import Series, Summary
from benchmarks.restore.measured.lab import Samples, SettingLab, median_ratio
from benchmarks.restore.measured.scale import (
    FULL,
    QUICK,
    Balance,
    MeasuredSetting,
    Scale,
)
from benchmarks.restore.measured.storage import kv_over_stored
from benchmarks.scratch import scratch_folder
from engine_adapters.restore import LAYER_MODES, Mode
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
SCRATCH_BYTES = 7_000_000_000
_SINGLE = (Mode.RECOMPUTE, Mode.KV, Mode.HIDDEN)


def run(settings: Settings) -> tuple[Series, ...]:
    """The measured part at its two sizes."""
    return measure(settings, QUICK if settings.quick else FULL)


def measure(settings: Settings, scale: Scale) -> tuple[Series, ...]:
    """Restores in every setting; raises BenchmarkError."""
    threads = torch.get_num_threads()
    with ExitStack() as stack:
        stack.callback(torch.set_num_threads, threads)
        folder = stack.enter_context(scratch_folder(settings.folder, SCRATCH_BYTES))
        write_random_model(folder / "model", scale.shape, [corpus()[:TOKENIZER_BYTES]])
        model = Model.from_directory(folder / "model")
        found: dict[MeasuredSetting, Samples] = {}
        for setting in scale.settings:
            with scratch_folder(folder, 0) as place:
                found[setting] = SettingLab(setting, scale, model, place, settings).measure()
        with scratch_folder(folder, 0) as place:
            stored = kv_over_stored(place)
    return (*_figures(found, stored), *_details(found))


def _figures(found: dict[MeasuredSetting, Samples], stored: dict[str, float]) -> list[Series]:
    bound = [median_ratio(one["hcache_s"], one["bound_s"]) for one in found.values()]
    single = [
        max(median_ratio(one["hcache_s"], one[f"{mode}_s"]) for mode in _SINGLE)
        for one in found.values()
    ]
    balanced = [
        median_ratio(one["kv_s"], one["hcache_s"])
        for setting, one in found.items()
        if setting.balance is Balance.BALANCED
    ]
    equal = [one["tokens_equal"][0] for one in found.values()]
    ratios = tuple(stored.values())
    rows = (
        ("hcache_vs_bound_max", "ratio", bound, Summary.MOST),
        ("hcache_vs_best_single_max", "ratio", single, Summary.MOST),
        ("hcache_vs_kv_balanced_x", "ratio", balanced, Summary.LEAST),
        ("storage_per_token_kv_over_hcache_min", "ratio", ratios, Summary.LEAST),
        ("storage_per_token_kv_over_hcache_max", "ratio", ratios, Summary.MOST),
        ("tokens_equal", "all", equal, Summary.LEAST),
    )
    return [
        Series(key=key, unit=unit, samples=tuple(samples), summary=summary, is_figure=True)
        for key, unit, samples, summary in rows
    ]


def _details(found: dict[MeasuredSetting, Samples]) -> list[Series]:
    """Speeds of all modes, the bound, and the ratio to it."""
    result = []
    for setting, samples in found.items():
        for mode in LAYER_MODES:
            speeds = tuple(setting.token_count / seconds for seconds in samples[f"{mode}_s"])
            result.append(Series(key=f"{setting.name}_{mode}", unit="tokens/s", samples=speeds))
        limits = tuple(setting.token_count / seconds for seconds in samples["bound_s"])
        result.append(Series(key=f"{setting.name}_bound", unit="tokens/s", samples=limits))
        for mode in (Mode.HCACHE, Mode.AUTO):
            ratios = tuple(
                ours / bound
                for ours, bound in zip(samples[f"{mode}_s"], samples["bound_s"], strict=True)
            )
            result.append(
                Series(key=f"{setting.name}_{mode}_vs_bound", unit="ratio", samples=ratios)
            )
        result += [
            Series(
                key=f"{setting.name}_device_limit",
                unit="MB/s",
                samples=samples["device_mb_per_s_max"],
            ),
            Series(
                key=f"{setting.name}_device_rate_reached",
                unit="ratio",
                samples=samples["device_rate_reached"],
            ),
        ]
        for name in ("io_hidden", "io_kv", "compute", "project"):
            milliseconds = tuple(1000 * seconds for seconds in samples[f"{name}_s"])
            result.append(Series(key=f"{setting.name}_{name}", unit="ms", samples=milliseconds))
    return result
