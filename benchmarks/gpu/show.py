"""One table of restorations beside the papers' figures, the targets, and what was left out."""

import statistics
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.gpu.found import WAYS, Cell
from benchmarks.gpu.printed import cake_over_both, hcache_over_kv
from benchmarks.gpu.scale import DeviceRate
from benchmarks.gpu.targets import Verdict
from benchmarks.gpu.time_budget import LeftOut
from benchmarks.restore.show import new_table, show
from engine_adapters.restore import Mode

REHEARSAL = " (a rehearsal, which says nothing of a GPU)"
TABLE_WIDTH = 220
NOTES = (
    "kv to auto: times as fast to the first token as recomputing",
    "HCache prints its speed-up over kv for A30 to H800 and DRAM, A100 and SSDs (section 6.2)",
    "Cake prints over loading\\over computing, for 13B and 16k tokens on an H100 (table 3, 100 %)",
)


def show_all(
    console: Console,
    device_name: str,
    rates: Sequence[DeviceRate],
    cells: Sequence[Cell],
    found: Sequence[Verdict],
    left_out: Sequence[LeftOut],
    *,
    is_rehearsal: bool,
) -> None:
    """Everything that a person should read of a run."""
    if cells:
        # One line for each cell, however narrow the terminal is: files keep it whole.
        wide = Console(file=console.file, width=TABLE_WIDTH)
        wide.print(_restorations(device_name, rates, cells))
        for note in NOTES:
            console.print(f"* {note}", highlight=False, markup=False)
    targets = new_table(
        f"Targets on {device_name}{REHEARSAL if is_rehearsal else ''}",
        ("figure",),
        ("limit", "measured", ""),
    )
    for one in found:
        sign = ">=" if one.target.is_least else "<="
        value = "" if one.value is None else f"{one.value:.3f}"
        targets.add_row(one.target.figure, f"{sign} {one.target.limit:g}", value, one.word)
    show(console, targets, ())
    for each in left_out:
        console.print(f"left out: {each.name}: {each.why}", highlight=False, markup=False)


def _restorations(device_name: str, rates: Sequence[DeviceRate], cells: Sequence[Cell]) -> Table:
    table = new_table(
        f"Restorations on {device_name}",
        ("model", "rate"),
        (
            *("tokens", "recompute, s", *WAYS[1:]),
            *("hcache/kv", "HCache prints", "cake/kv\\recompute", "Cake prints"),
            *("hcache/bound", "cake/oracle"),
        ),
    )
    bytes_per_s = {rate.name: rate.bytes_per_s for rate in rates}
    for cell in cells:
        over_kv = cell.faster(Mode.CAKE, Mode.KV)
        over_computing = cell.faster(Mode.CAKE, Mode.RECOMPUTE)
        table.add_row(
            f"{cell.model}, {cell.layer_count} layers",
            cell.rate,
            str(cell.token_count),
            f"{statistics.median(cell.ttft_s[Mode.RECOMPUTE]):.3f}",
            *(f"{cell.faster(way, Mode.RECOMPUTE):.2f}" for way in WAYS[1:]),
            f"{cell.faster(Mode.HCACHE, Mode.KV):.2f}",
            hcache_over_kv(cell),
            f"{over_kv:.2f}\\{over_computing:.2f}",
            cake_over_both(cell, bytes_per_s[cell.rate]),
            f"{cell.hcache_vs_bound:.3f}",
            f"{cell.cake_vs_oracle:.3f}",
        )
    return table
