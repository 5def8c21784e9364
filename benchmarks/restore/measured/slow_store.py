"""A store that is slower than its profile says, or silent, against computing everything."""

import os
import random
import signal
import statistics
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from rich.console import Console

from benchmarks.benchmark import BenchmarkError, Settings
from benchmarks.core_split import CoreSplit, core_split
from benchmarks.document import TOKENIZER_BYTES, corpus
from benchmarks.interleave import Alternative, Measured, Rounds, interleave, ratios
from benchmarks.kit.saved_history import SavedHistory
from benchmarks.report import Series, Summary
from benchmarks.restore.measured.lab import history_of
from benchmarks.restore.measured.machine import SettingMachine
from benchmarks.restore.measured.scale import ABLATION, QUICK, MeasuredSetting
from benchmarks.restore.show import new_table, show
from benchmarks.scratch import scratch_folder
from engine_adapters.restore import (
    ComputeCost,
    LayerCosts,
    LayerRates,
    LayerSchedule,
    Mode,
    schedule_for,
    storing_schedule,
    with_faster_reads,
)
from engine_adapters.runner.engine.engine import TOKEN_BUDGET, Engine
from engine_adapters.runner.engine.request import Completion
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.random_model import RandomModelShape, write_random_model
from engine_adapters.runner.restore.restore_options import RestoreOptions
from engine_adapters.runner.restore.restorer import Restorer
from engine_adapters.runner.states.state_format import token_bytes
from engine_adapters.runner.turn import span_bytes_of
from kvstored_client import Client, StateKind

FIGURES = ("slow_store_vs_computing_max",)
FIGURES_SPLIT = ("slow_store_split_vs_computing_max",)
SCRATCH_BYTES = 3_000_000_000
MODES = (Mode.KV, Mode.HIDDEN, Mode.HCACHE, Mode.AUTO)
SILENT = 0.0
SHARES = {"1": 1.0, "1_4": 1 / 4, "1_16": 1 / 16, "1_256": 1 / 256, "silent": SILENT}
"""Of the rate that the profile tells; a silent daemon is stopped when it is asked."""
SETTING = MeasuredSetting(token_count=1024, bandwidth_share=1.0, threads=1, balance_threads=1)
COMPUTING = "computing"
AGAIN = "computing_again"
"""The same once more in each round: what it differs by is the machine's noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowScale:
    """A model and how often each mode restores at each rate."""

    shape: RandomModelShape
    rounds: Rounds
    is_split: bool = False
    """Whether computing has a core for itself."""


FULL_SLOW = SlowScale(shape=ABLATION.shape, rounds=Rounds(count=9, count_min=7, time_limit_s=60.0))
QUICK_SLOW = SlowScale(shape=QUICK.shape, rounds=Rounds(count=1, count_min=1, time_limit_s=1.0))


def run(settings: Settings) -> tuple[Series, ...]:
    """Every mode at every rate; raises BenchmarkError."""
    return measure(settings, QUICK_SLOW if settings.quick else FULL_SLOW)


def run_split(settings: Settings) -> tuple[Series, ...]:
    """The same with a core for computing and one for everything else; raises BenchmarkError."""
    return measure(settings, replace(QUICK_SLOW if settings.quick else FULL_SLOW, is_split=True))


def measure(settings: Settings, scale: SlowScale) -> tuple[Series, ...]:
    """Every mode at every rate; raises BenchmarkError."""
    threads = torch.get_num_threads()
    with ExitStack() as stack:
        stack.callback(torch.set_num_threads, threads)
        folder = stack.enter_context(scratch_folder(settings.folder, SCRATCH_BYTES))
        write_random_model(folder / "model", scale.shape, [corpus()[:TOKENIZER_BYTES]])
        model = Model.from_directory(folder / "model")
        split = stack.enter_context(core_split()) if scale.is_split else None
        lab = SlowStoreLab(model, folder, scale, settings, split)
        found = lab.measure()
    show_found(settings.console, found)
    return series_of(found, name="slow_store_split" if scale.is_split else "slow_store")


def series_of(
    found: Mapping[str, Mapping[str, tuple[float, ...]]], *, name: str
) -> tuple[Series, ...]:
    """Seconds of every mode over those of computing, round by round, and the worst median.

    ``name`` begins the key of every series.
    """
    details = []
    medians = []
    for share, seconds in found.items():
        details.append(
            Series(key=f"{name}_{share}_{COMPUTING}", unit="s", samples=seconds[COMPUTING])
        )
        noise = ratios(seconds[AGAIN], seconds[COMPUTING])
        details.append(
            Series(key=f"{name}_{share}_{AGAIN}_vs_computing", unit="ratio", samples=noise)
        )
        for mode in MODES:
            over = ratios(seconds[mode], seconds[COMPUTING])
            medians.append(statistics.median(over))
            details.append(Series(key=f"{name}_{share}_{mode}", unit="s", samples=seconds[mode]))
            details.append(
                Series(key=f"{name}_{share}_{mode}_vs_computing", unit="ratio", samples=over)
            )
            restored = seconds[f"{mode}_restored"]
            details.append(
                Series(key=f"{name}_{share}_{mode}_restored", unit="share", samples=restored)
            )
            waited = ratios(seconds[f"{mode}_waited"], seconds[COMPUTING])
            details.append(
                Series(key=f"{name}_{share}_{mode}_waited", unit="ratio", samples=waited)
            )
    figure = Series(
        key=f"{name}_vs_computing_max",
        unit="ratio",
        samples=tuple(medians),
        summary=Summary.MOST,
        is_figure=True,
    )
    return (figure, *details)


def show_found(console: Console, found: Mapping[str, Mapping[str, tuple[float, ...]]]) -> None:
    """A row for each rate; times to the first token over computing, and what was restored."""
    table = new_table(
        f"A slow store, {SETTING.token_count} tokens: time to the first token over computing",
        ("rate",),
        ("computing, s", "once more", *MODES),
    )
    for share, seconds in found.items():
        cells = []
        for mode in MODES:
            over = statistics.median(ratios(seconds[mode], seconds[COMPUTING]))
            restored = statistics.median(seconds[f"{mode}_restored"])
            cells.append(f"{over:.3f} ({restored:.0%})")
        row = share.replace("_", "/")
        noise = statistics.median(ratios(seconds[AGAIN], seconds[COMPUTING]))
        computing = f"{statistics.median(seconds[COMPUTING]):.3f}"
        table.add_row(row, computing, f"{noise:.3f}", *cells)
    show(console, table, ("in brackets: tokens that were loaded",))


class SlowStoreLab:
    """One history, saved once for each mode, and restored by engines at several rates."""

    def __init__(
        self,
        model: Model,
        folder: Path,
        scale: SlowScale,
        settings: Settings,
        split: CoreSplit | None = None,
    ) -> None:
        self._model = model
        self._scale = scale
        self._settings = settings
        self._machine = SettingMachine(SETTING, model, folder, split)
        self._history = history_of(SETTING, model, settings)

    def measure(self) -> dict[str, dict[str, tuple[float, ...]]]:
        """Seconds to the first token by rate and mode."""
        machine = self._machine
        computing = machine.computing()
        costs = machine.nominal_costs(computing)
        layers = self._model.config.layer_count
        saved = SavedHistory(
            self._model,
            self._history,
            {mode: _stored(mode, costs, layers) for mode in MODES},
        )
        with machine.saving() as client:
            saved.save(client, new_tokens=1)
        bytes_per_s = machine.bytes_per_s(computing)
        return {
            name: self._at(name, share, bytes_per_s, saved, costs) for name, share in SHARES.items()
        }

    def _at(
        self,
        name: str,
        share: float,
        bytes_per_s: float,
        saved: SavedHistory,
        costs: LayerCosts,
    ) -> dict[str, tuple[float, ...]]:
        with self._machine.restoring((share or 1.0) * bytes_per_s) as device:
            client, daemon = device.client, device.daemon

            def begin_round() -> None:
                device.forget()
                saved.ask_for_nothing(client, MODES)

            def restore(mode: Mode) -> Measured:
                restorer = self._restorer(client, saved, mode, costs)
                with _silence(daemon.pid) if share == SILENT else nullcontext():
                    completion = self._completion(restorer)
                restorer.close()
                restore = completion.restore
                return {
                    mode: completion.ttft_s,
                    f"{mode}_restored": restore.restored_tokens / len(self._history),
                    f"{mode}_waited": restore.waited_s,
                }

            group = [Alternative(run=partial(restore, mode)) for mode in MODES]
            group += [Alternative(run=partial(self._compute, key)) for key in (COMPUTING, AGAIN)]
            return interleave(
                [group],
                rounds=self._scale.rounds,
                generator=random.Random(f"{self._settings.seed} {name}"),
                announce=lambda text: self._settings.console.print(f"rate {name}: {text}"),
                prepare=begin_round,
            )

    def _compute(self, key: str) -> Measured:
        return {key: self._completion(None).ttft_s}

    def _restorer(
        self, client: Client, saved: SavedHistory, mode: Mode, costs: LayerCosts
    ) -> Restorer:
        """As the runner makes it, with a profile of the full rate."""
        state_format = saved.format(mode)
        tokens, layers = SETTING.token_count, self._model.config.layer_count
        rates = None
        if mode in (Mode.HCACHE, Mode.AUTO):
            rates = LayerRates(
                costs,
                tokens,
                hidden_bytes=token_bytes(self._model, StateKind.HIDDEN),
                kv_bytes=token_bytes(self._model, StateKind.KV),
            )
        return Restorer(
            client,
            state_format,
            self._model,
            RestoreOptions(
                span_bytes=span_bytes_of(state_format),
                step_tokens=TOKEN_BUDGET,
                compute=ComputeCost(
                    step_s=0.0, token_s=layers * costs.compute_s / tokens, attention_s=0.0
                ),
                layer_rates=rates,
            ),
        )

    def _completion(self, restorer: Restorer | None) -> Completion:
        """Of a request with the history, to its first token."""
        engine = Engine(
            self._model,
            cache_tokens=len(self._history) + 2,
            token_budget=TOKEN_BUDGET,
            requests_max=1,
            restorer=restorer,
        )
        engine.add_request([*self._history, 0], new_tokens_max=1, stop_token_ids=())
        (completion,) = engine.run()
        if completion.error is not None:
            raise BenchmarkError(f"a restoration failed: {completion.error}")
        return completion


def _stored(mode: Mode, costs: LayerCosts, layers: int) -> LayerSchedule:
    planned = schedule_for(mode, costs, layers)
    return storing_schedule(planned, schedule_for(mode, with_faster_reads(costs), layers))


@contextmanager
def _silence(pid: int) -> Iterator[None]:
    """The daemon is stopped, and goes on afterwards."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
