import io

from rich.console import Console

from benchmarks.cake.cell_setting import CellSetting
from benchmarks.cake.cell_times import CellTimes
from benchmarks.cake.chosen_cells import chosen_tables
from benchmarks.cake.show_measured import show_measured_table, show_times

FASTER = CellTimes(
    cake_s=(1.0,),
    load_s=(2.5,),
    compute_s=(1.5,),
    oracle_s=(0.8,),
    nominal_oracle_s=(0.8,),
    beside_oracle_s=(0.8,),
    were_equal=True,
    cake_parts_s={},
)
SLOWER = CellTimes(
    cake_s=(2.0,),
    load_s=(2.5,),
    compute_s=(1.5,),
    oracle_s=(0.8,),
    nominal_oracle_s=(0.8,),
    beside_oracle_s=(0.8,),
    were_equal=True,
    cake_parts_s={},
)


def test_ours_stand_below_the_papers_and_a_loss_is_marked() -> None:
    kept = (("12.5%", "7 Gbps"), ("12.5%", "100 Gbps"), ("100%", "7 Gbps"))
    (table,) = chosen_tables({3: lambda cell: cell.labels[0] == "H100" and cell.labels[1:] in kept})
    found = {CellSetting.of(cell, 4096): FASTER for cell in table.cells}
    found[CellSetting.of(table.cells[-1], 4096)] = SLOWER
    console = Console(file=io.StringIO(), width=120)
    show_measured_table(console, table, found, tokens_max=4096, notes=["a note"])
    show_times(console, found)
    file = console.file
    assert isinstance(file, io.StringIO)
    lines = [line.split() for line in file.getvalue().splitlines() if line]
    assert lines[0][:3] == ["Table", "3", "measured:"]
    assert ["H100", "12.5%", "paper", "1.74\\2.40", "1.05\\18.24"] in lines
    assert ["ours", "2.50\\1.50", "2.50\\1.50"] in lines
    # Nothing in the column that this row has not.
    assert ["ours", "!1.25\\0.75"] in lines
    assert ["to", "oracle", "2.500"] in lines
    assert ["*", "a", "note"] in lines
    assert any("2000 2000-2000" in " ".join(line) for line in lines)
