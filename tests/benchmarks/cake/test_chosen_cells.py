from benchmarks.cake.cell_setting import CellSetting
from benchmarks.cake.chosen_cells import FULL_CHOICES, QUICK_CHOICES, chosen_tables


def test_the_full_size_covers_what_each_table_varies() -> None:
    settings = [
        [CellSetting.of(cell, 4096) for cell in table.cells]
        for table in chosen_tables(FULL_CHOICES)
    ]
    table3, table4, table5, table6, table7 = settings
    assert len({each.gbit_per_s for each in table3}) == 5
    assert len({each.share for each in table3}) == 4
    assert len(table3) == 20
    assert [each.step_tokens for each in table4] == [64, 128, 256, 512, 1024, 2048]
    assert [each.tokens for each in table5] == [1024, 2048, 3072, 4096]
    assert {each.is_grouped for each in table6} == {False, True}
    assert {each.bits for each in table7} == {16, 8, 3}


def test_the_quick_size_measures_some_of_the_same_cells() -> None:
    full, quick = (
        {cell.labels for table in chosen_tables(choices) for cell in table.cells}
        for choices in (FULL_CHOICES, QUICK_CHOICES)
    )
    assert quick < full


def test_a_table_without_a_choice_is_left_out() -> None:
    assert [table.number for table in chosen_tables({5: lambda _: True})] == [5]
