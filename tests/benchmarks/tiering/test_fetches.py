import io
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.benchmark import Settings
from benchmarks.tiering import fetches, paper
from benchmarks.tiering.contexts import Context
from benchmarks.tiering.fetches import compare_fetches, needed_bytes, supply_share
from benchmarks.tiering.grid import Scale
from benchmarks.tiering.serving import Event, Kind

EVENTS = [
    Event(100.0, Kind.ENTER, 0, 0),
    Event(100.0, Kind.START, 0, 0),
    Event(600.0, Kind.START, 0, 1),
    Event(700.0, Kind.START, 1, 1),
]
CONTEXTS = [
    (Context(10, False), Context(15, False, 10)),
    (Context(20, False), Context(15, True, 5)),
]


def test_what_later_turns_need_by_the_window_in_which_they_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetches, "warm_up", lambda count: 0)
    token = paper.LLAMA_13B.token_bytes
    stored = needed_bytes(EVENTS, CONTEXTS, paper.LLAMA_13B, is_cut=False)
    assert stored == {1: [10 * token, 20 * token]}
    cut = needed_bytes(EVENTS, CONTEXTS, paper.LLAMA_13B, is_cut=True)
    assert cut == {1: [10 * token, 5 * token]}


def test_the_part_for_which_the_disks_give_enough() -> None:
    assert supply_share({0: [500, 500], 3: [1000, 1000]}, 2.0) == 0.75
    assert supply_share({}, 2.0) == 0


def test_every_remedy_has_a_row(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=140)
    settings = Settings(quick=True, folder=tmp_path, seed=1, console=console)
    series = compare_fetches(settings, Scale(sessions=40))
    assert [one.key for one in series if one.is_figure] == [fetches.FIGURE]
    assert len({one.key for one in series}) == len(series)
    values = {one.key: one.value for one in series}
    assert values["fetches_stored_supply_share"] <= values["fetches_cut_supply_share"] <= 1
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert all(name in text for name in fetches.REMEDIES)
