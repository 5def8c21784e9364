"""One setting as a table: every mode with its layers, speed and ratio to the bound."""

from collections import Counter
from collections.abc import Sequence
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.restore.measured.found import Found
from benchmarks.restore.show import new_table, show
from engine_adapters.restore import LAYER_MODES

BOUND = "bound"


def table_of(found: Found) -> Table:
    """Medians of the rounds, and the least and the largest ratio to the bound."""
    setting = found.setting
    threads = f"{setting.threads} thread{'s' if setting.threads > 1 else ''}"
    if setting.balance_threads != setting.threads:
        threads += f", balance of {setting.balance_threads}"
    table = new_table(
        f"{setting.token_count} tokens, bandwidth {setting.bandwidth_share:g}, {threads}: "
        f"{setting.balance.value}",
        ("", "planned", "restored"),
        ("seconds", "tokens/s", "over the bound", "min", "max"),
    )
    for mode in LAYER_MODES:
        ratios = found.over_bound(mode)
        table.add_row(
            mode,
            str(found.schedules[mode]),
            _most_common(found.restored[mode]),
            *_speed(found.seconds[mode], setting.token_count),
            *(f"{number:.3f}" for number in (median(ratios), min(ratios), max(ratios))),
        )
    bound = _most_common(found.bounds)
    table.add_row(BOUND, bound, "", *_speed(found.bounds_s, setting.token_count), "1.000", "", "")
    return table


def show_found(console: Console, found: Found) -> None:
    """The table, and what the costs were."""
    costs = {
        name: median(getattr(one, f"{name}_s") for one in found.costs)
        for name in ("io_hidden", "io_kv", "compute", "project", "load")
    }
    milliseconds = ", ".join(f"{name} {1000 * seconds:.1f}" for name, seconds in costs.items())
    drift, beside = found.drift(), found.over_beside()
    notes = (
        f"{len(found.costs)} rounds; milliseconds of a layer: {milliseconds}",
        f"device {found.device_bytes_per_s / 1e6:.0f} MB/s",
        f"C_H of the rounds: {min(drift):.2f} to {max(drift):.2f} of the one that set this",
        f"hcache, costs of both sides at once: {median(beside):.3f} of the duration of its layers",
        f"hcache waited: {median(found.waited_over_bound()):.3f} of the bound",
        f"hcache worked: {median(found.worked_over_costs()):.3f} of what its work costs",
        f"hcache made layers: {median(found.made_over_costs()):.3f} of what its work costs",
    )
    show(console, table_of(found), notes)


def _most_common(layers: Sequence[object]) -> str:
    ((text, _),) = Counter(map(str, layers)).most_common(1)
    return text


def _speed(seconds: tuple[float, ...], token_count: int) -> tuple[str, str]:
    return f"{median(seconds):.3f}", f"{token_count / median(seconds):.0f}"
