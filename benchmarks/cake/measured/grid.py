"""Tables 3 to 7 of the paper, those of their cells that were chosen, measured."""

from collections.abc import Iterable
from itertools import groupby

from benchmarks.cake.cell_setting import CellSetting
from benchmarks.cake.cell_times import CellTimes, mean_speedup
from benchmarks.cake.chosen_cells import chosen_tables
from benchmarks.cake.measured.cell_lab import USES, CellLab
from benchmarks.cake.measured.history import CakeHistory
from benchmarks.cake.measured.stage import Stage, slow_machine
from benchmarks.cake.measured.step_timer import measured_cost
from benchmarks.cake.paper_tables import PaperTable
from benchmarks.cake.show_measured import show_measured_table, show_times
from benchmarks.report import Series, Summary
from benchmarks.scratch import scratch_folder
from engine_adapters.restore import ComputeCost
from engine_adapters.runner.engine.engine import TOKEN_BUDGET

FIGURES = (
    "cake_vs_oracle_median",
    "cake_vs_oracle_max",
    "cake_vs_best_baseline_max",
    "speedup_over_io_mean",
    "speedup_over_compute_mean",
)
BASE_REPEATS = 3
BYTE_BITS = 8

Found = dict[CellSetting, CellTimes]


def measure(stage: Stage) -> tuple[list[Series], bool]:
    """Measures every chosen cell; the series, and whether all tokens were equal."""
    tables = chosen_tables(dict(stage.scale.choices))
    settings = [
        CellSetting.of(cell, stage.scale.tokens) for table in tables for cell in table.cells
    ]
    if stage.scale.has_cachegen:
        settings.append(CellSetting.of_cachegen(stage.scale.tokens))
    found = _Grid(stage).measure(settings)
    for table in tables:
        show_measured_table(
            stage.settings.console,
            table,
            found,
            tokens_max=stage.scale.tokens,
            notes=_notes(table, stage.scale.tokens),
        )
    show_times(stage.settings.console, found)
    series = [*_figures(tables, found, stage.scale.tokens), *_details(found)]
    were_equal = all(times.were_equal for setting, times in found.items() if setting.is_lossless)
    return series, were_equal


class _Grid:
    """Everything that is measured once for many cells."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._costs: dict[tuple[bool, int, int], ComputeCost] = {}
        base = stage.history(stage.scale.tokens)
        self._base = base
        self._base_bytes = base.chunk_bytes * base.chunk_count
        self._value_bits = BYTE_BITS * base.model.dtype.itemsize

    def measure(self, settings: Iterable[CellSetting]) -> Found:
        """Each once. Cells of one stored history follow each other, so that it is stored once."""
        chosen = dict.fromkeys(settings)
        found: Found = {}
        by_history = sorted(chosen, key=_history_of)
        for (is_grouped, tokens, codec), members in groupby(by_history, key=_history_of):
            # Bandwidths are in proportion to what computing takes, which drifts with the machine.
            base_s = self._base_s()
            stored = self._stage.history(tokens, is_grouped=is_grouped, codec=codec)
            with scratch_folder(self._stage.folder, 0) as folder:
                machine = slow_machine(folder)
                with machine.saving() as client:
                    stored.save(client, USES)
                for setting in members:
                    bytes_per_s = setting.bytes_per_s(
                        self._base_bytes, base_s, value_bits=self._value_bits
                    )
                    lab = CellLab(
                        self._stage,
                        setting,
                        stored,
                        compute=self._cost(setting, stored),
                        bytes_per_s=bytes_per_s,
                    )
                    with machine.restoring(bytes_per_s) as device:
                        found[setting] = lab.measure(device)
        return {setting: found[setting] for setting in chosen}

    def _base_s(self) -> float:
        """Computing the longest history of MHA alone, with a full budget, as it is now."""
        return self._base.alone_s(TOKEN_BUDGET, repeats=BASE_REPEATS)

    def _cost(self, setting: CellSetting, stored: CakeHistory) -> ComputeCost:
        """Measured once for each model, budget and share, at full length."""
        key = (setting.is_grouped, setting.token_budget, setting.others_tokens)
        if key not in self._costs:
            self._costs[key] = measured_cost(
                stored.model,
                tokens=self._stage.scale.tokens,
                token_budget=setting.token_budget,
                others_tokens=setting.others_tokens,
            )
        return self._costs[key]


def _history_of(setting: CellSetting) -> tuple[bool, int, str]:
    return setting.is_grouped, setting.tokens, setting.codec


def _notes(table: PaperTable, tokens_max: int) -> list[str]:
    notes = [
        f"the paper's 16k tokens are {tokens_max}, and bandwidths scaled to this machine",
        "speed-up over loading alone \\ over computing alone; !: slower than one of them",
    ]
    if len({cell.bits for cell in table.cells}) > 1:
        notes.append(
            "8 and 3 bits: codecs int8 and int3, which encode and decode; raw values have more "
            "than the paper's 16 bits here, and a device that is faster by as much"
        )
    return notes


def _figures(tables: tuple[PaperTable, ...], found: Found, tokens_max: int) -> list[Series]:
    first = [found[CellSetting.of(cell, tokens_max)] for cell in tables[0].cells]
    to_oracle = tuple(times.to_oracle for times in found.values())
    rows = (
        ("cake_vs_oracle_median", to_oracle, Summary.MEDIAN),
        ("cake_vs_oracle_max", to_oracle, Summary.MOST),
        (
            "cake_vs_best_baseline_max",
            tuple(times.to_best_baseline for times in found.values()),
            Summary.MOST,
        ),
        (
            "speedup_over_io_mean",
            (mean_speedup([times.over_load for times in first]),),
            Summary.MEDIAN,
        ),
        (
            "speedup_over_compute_mean",
            (mean_speedup([times.over_compute for times in first]),),
            Summary.MEDIAN,
        ),
    )
    # By other oracles, for what a miss consists of: a device that is slower than it should be,
    # and two sides that hinder each other.
    others = (
        ("cake_vs_oracle_nominal", tuple(times.to_nominal_oracle for times in found.values())),
        ("cake_vs_oracle_beside", tuple(times.to_beside_oracle for times in found.values())),
    )
    return [
        *(
            Series(key=key, unit="ratio", samples=samples, summary=summary, is_figure=True)
            for key, samples, summary in rows
        ),
        *(Series(key=key, unit="ratio", samples=samples) for key, samples in others),
    ]


def _details(found: Found) -> list[Series]:
    """Milliseconds of all rounds of every cell, and whether lossy codecs changed the tokens."""
    result = []
    for setting, times in found.items():
        ways = {
            "cake": times.cake_s,
            "load": times.load_s,
            "compute": times.compute_s,
            "oracle": times.oracle_s,
            "oracle_nominal": times.nominal_oracle_s,
            "oracle_beside": times.beside_oracle_s,
            **{f"cake_{name}": seconds for name, seconds in times.cake_parts_s.items()},
        }
        result += [
            Series(
                key=f"{setting.name}_{name}",
                unit="ms",
                samples=tuple(1000 * each for each in seconds),
            )
            for name, seconds in ways.items()
        ]
        if not setting.is_lossless:
            key = f"{setting.name}_tokens_equal"
            result.append(Series(key=key, unit="all", samples=(float(times.were_equal),)))
    return result
