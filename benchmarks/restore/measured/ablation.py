"""The paper's figure 13, measured: layers beside tokens as the unit of a partition.

HCache, section 6.3.2. One setting has KV as the complement of hidden states, one computes
the others; each partition restores the same history in turn.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from rich.console import Console

from benchmarks.benchmark import Settings
from benchmarks.interleave import Alternative, Measured, interleave, ratios
from benchmarks.kit.scratch_model import scratch_model, torch_threads
from benchmarks.report import Series, Summary
from benchmarks.restore.measured.lab import history_of
from benchmarks.restore.measured.machine import SettingMachine
from benchmarks.restore.measured.partitions import LAYER_WISE, PartitionRunner
from benchmarks.restore.measured.scale import (
    ABLATION,
    ABLATION_QUICK,
    MeasuredSetting,
    Scale,
)
from benchmarks.restore.show import new_table, show
from benchmarks.restore.token_partition.partition import TokenPartition, predict_tokens_s
from benchmarks.scratch import scratch_folder
from engine_adapters.restore import LayerCosts, LayerSchedule, Mode, Source, predict_s, schedule_for
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.states.state_format import CHUNK_TOKENS

BALANCED = "token_wise"
ROUNDED = "token_wise_rounded"
TOKEN_WISE = (BALANCED, ROUNDED)
COMPLEMENTS = (Source.KV, Source.COMPUTE)
EQUAL = "ablation_tokens_equal"
FIGURES = (
    *(f"ablation_{other}_{name}_vs_layers" for other in COMPLEMENTS for name in TOKEN_WISE),
    EQUAL,
)
SCRATCH_BYTES = 6_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitions:
    """What is compared in one setting, planned from the costs that were measured in it."""

    schedule: LayerSchedule
    token_wise: Mapping[str, TokenPartition]
    predicted_s: Mapping[str, float]

    @property
    def other(self) -> Source:
        """The complement of hidden states."""
        return self.token_wise[BALANCED].other

    def text(self, name: str) -> str:
        """Layers or tokens of each source."""
        if name == LAYER_WISE:
            return f"{self.schedule} layers"
        tokens = self.token_wise[name]
        other = "KV" if tokens.other is Source.KV else "RE"
        return f"{tokens.hidden_count} H + {tokens.other_count} {other} tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Seconds of each partition, one for each round."""

    partitions: Partitions
    seconds: Mapping[str, tuple[float, ...]]
    is_equal: bool

    def over_layers(self, name: str) -> tuple[float, ...]:
        """Seconds over those of layers in the same round."""
        return ratios(self.seconds[name], self.seconds[LAYER_WISE])


def run(settings: Settings) -> tuple[Series, ...]:
    """The ablation at its two sizes; raises BenchmarkError."""
    return measure(settings, ABLATION_QUICK if settings.quick else ABLATION)


def measure(settings: Settings, scale: Scale) -> tuple[Series, ...]:
    """Restores by each partition in every setting; raises BenchmarkError."""
    series: list[Series] = []
    with (
        torch_threads(),
        scratch_model(settings, scale.shape, scratch_bytes=SCRATCH_BYTES) as (folder, model),
    ):
        found = []
        for setting in scale.settings:
            with scratch_folder(folder, 0) as place:
                found.append(_measure(setting, scale, model, place, settings))
            _show(settings.console, setting, found[-1])
    for one in found:
        series += _series(one)
    equal = tuple(float(one.is_equal) for one in found)
    return (
        *series,
        Series(key=EQUAL, unit="all", samples=equal, summary=Summary.LEAST, is_figure=True),
    )


def plan(costs: LayerCosts, *, layer_count: int, token_count: int) -> Partitions:
    """The paper's partitions of both kinds; ``costs`` are those of ``token_count`` tokens."""
    schedule = schedule_for(Mode.HCACHE, costs, layer_count)
    balanced = TokenPartition.balanced(costs, token_count)
    token_wise = {BALANCED: balanced, ROUNDED: balanced.rounded(CHUNK_TOKENS)}

    def costs_of(tokens: int) -> LayerCosts:
        share = tokens / token_count
        return LayerCosts(
            io_hidden_s=costs.io_hidden_s * share,
            io_kv_s=costs.io_kv_s * share,
            compute_s=costs.compute_s * share,
            project_s=costs.project_s * share,
            load_s=costs.load_s * share,
        )

    predicted_s = {
        name: predict_tokens_s(tokens, layer_count=layer_count, costs_of=costs_of)
        for name, tokens in token_wise.items()
    }
    return Partitions(
        schedule=schedule,
        token_wise=token_wise,
        predicted_s={LAYER_WISE: predict_s(schedule, costs), **predicted_s},
    )


def _measure(
    setting: MeasuredSetting, scale: Scale, model: Model, folder: Path, settings: Settings
) -> Found:
    machine = SettingMachine(setting, model, folder)
    computing = machine.computing()
    bytes_per_s = machine.bytes_per_s(computing)
    partitions = plan(
        machine.nominal_costs(computing),
        layer_count=model.config.layer_count,
        token_count=setting.token_count,
    )
    runner = PartitionRunner(
        model,
        history_of(setting, model, settings),
        partitions.schedule,
        partitions.token_wise,
    )
    with machine.saving() as client:
        runner.save(client)
    with machine.restoring(bytes_per_s) as device:

        def restore(name: str) -> Measured:
            return {name: runner.restore(device.client, name)}

        def forget() -> None:
            # A chunk that was read twice comes into DRAM: what follows must not meet it there.
            device.forget()
            runner.ask_for_nothing(device.client)

        group = [
            Alternative(prepare=forget, run=partial(restore, name))
            for name in (LAYER_WISE, *TOKEN_WISE)
        ]
        seconds = interleave(
            [group],
            rounds=scale.rounds,
            generator=settings.random(),
            announce=lambda text: settings.console.print(f"{setting.name}: {text}"),
        )
        is_equal = True
        for name in seconds:
            device.forget()
            is_equal = is_equal and runner.check_continuation(device.client, name)
    return Found(partitions=partitions, seconds=seconds, is_equal=is_equal)


def _series(found: Found) -> list[Series]:
    start = f"ablation_{found.partitions.other}"
    result = []
    for name in TOKEN_WISE:
        result.append(
            Series(
                key=f"{start}_{name}_vs_layers",
                unit="ratio",
                samples=found.over_layers(name),
                is_figure=True,
            )
        )
        tokens = float(found.partitions.token_wise[name].hidden_count)
        result.append(Series(key=f"{start}_{name}_hidden_tokens", unit="tokens", samples=(tokens,)))
    for name, seconds in found.seconds.items():
        result.append(Series(key=f"{start}_{name}", unit="s", samples=seconds))
        predicted_s = found.partitions.predicted_s[name]
        result.append(Series(key=f"{start}_{name}_predicted", unit="s", samples=(predicted_s,)))
    return result


def _show(console: Console, setting: MeasuredSetting, found: Found) -> None:
    table = new_table(
        f"Figure 13, measured: {setting.token_count} tokens, bandwidth {setting.bandwidth_share:g}",
        ("", "partition"),
        ("seconds", "min", "max", "over layer-wise", "min", "max", "predicted"),
    )
    predicted_s = found.partitions.predicted_s
    for name in (LAYER_WISE, *TOKEN_WISE):
        table.add_row(
            name.replace("_", "-"),
            found.partitions.text(name),
            *(f"{number:.3f}" for number in _spread(found.seconds[name])),
            *(f"{number:.3f}" for number in _spread(found.over_layers(name))),
            f"{predicted_s[name] / predicted_s[LAYER_WISE]:.3f}",
        )
    show(console, table, (f"rounded to a multiple of {CHUNK_TOKENS} tokens, those of a chunk",))


def _spread(samples: tuple[float, ...]) -> tuple[float, float, float]:
    return median(samples), min(samples), max(samples)
