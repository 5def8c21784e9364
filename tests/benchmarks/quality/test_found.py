"""Figures and tables of what was found."""

import io
from dataclasses import replace

from rich.console import Console

from benchmarks.quality.found import FIGURES, Found
from benchmarks.quality.way import Way

FOUND = Found(
    perplexities={
        "one": {Way.AS: 10.1, Way.TT: 10.0, Way.NKVT: 25.0},
        "two": {Way.AS: 19.0, Way.TT: 20.0, Way.NKVT: 60.0},
    },
    hits={
        Way.AS: (True, True, True, False),
        Way.TT: (True, True, True, True),
        Way.NKVT: (False, False, True, False),
    },
)


def test_figures_are_those_of_the_worst_text() -> None:
    values = {each.key: each.value for each in FOUND.series()}
    figures = {each.key for each in FOUND.series() if each.is_figure}
    assert figures == set(FIGURES)
    assert values["ppl_as_over_tt"] == 10.1 / 10.0
    assert values["ppl_nkvt_over_tt"] == 2.5
    assert values["retrieval_as_minus_tt_points"] == -25.0
    assert values["ppl_two_as"] == 19.0
    assert values["retrieval_nkvt"] == 25.0


def test_a_text_in_which_wrong_positions_do_not_show_cannot_tell() -> None:
    assert FOUND.can_tell
    same = {Way.AS: 10.0, Way.TT: 10.0, Way.NKVT: 19.9}
    assert not replace(FOUND, perplexities={**FOUND.perplexities, "three": same}).can_tell


def test_tables_have_a_column_for_each_way() -> None:
    console = Console(file=io.StringIO(), width=80)
    for table in FOUND.tables():
        console.print(table)
    assert isinstance(console.file, io.StringIO)
    words = console.file.getvalue().split()
    assert words.count("NKVT") == 2
    assert "19.00 20.00 60.00" in " ".join(words)
    assert "4 75.0 100.0 25.0" in " ".join(words)
