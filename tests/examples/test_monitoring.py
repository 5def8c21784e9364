"""The dashboard and the alert rules name what the daemon has."""

import json
import re
from pathlib import Path

import pytest

from kvstored.metrics.families import families_of
from kvstored.metrics.readiness import Readiness
from tests.kvstored.metrics.snapshots import snapshot_of

FOLDER = Path(__file__).parents[2] / "examples" / "monitoring"
NAME = re.compile(r"\bkvstored_[a-z_]+")
COUNTER = re.compile(r"\.add\(\s*f?\"([a-z_{}.]+)\"")
ALERTS = (FOLDER / "alerts.yml").read_text()
SOURCES = Path(__file__).parents[2] / "kvstored"


def counted() -> set[str]:
    """The counters that the daemon's code adds to."""
    return {
        name
        for path in SOURCES.rglob("*.py")
        for name in COUNTER.findall(path.read_text())
        if "{" not in name
    }


def known() -> set[str]:
    """Every name of a sample."""
    counters = dict.fromkeys(counted(), 1)
    families = families_of(Readiness.SERVING, snapshot_of(counters=counters), version="1")
    names = {sample.name for family in families for sample in family.samples}
    return names | {"kvstored_arenas_capacity_bytes"}


@pytest.mark.parametrize("file", ["dashboard.json", "alerts.yml"])
def test_every_number_exists(file: str) -> None:
    named = set(NAME.findall((FOLDER / file).read_text()))
    assert len(named) > 5
    assert named - known() == set()


def test_a_first_event_was_no_increase() -> None:
    """Bug: a counter was not there until it was 1, and no rule saw it grow."""
    families = families_of(Readiness.SERVING, snapshot_of(counters={}), version="1")
    at_zero = {sample.name for family in families for sample in family.samples if sample.value == 0}
    watched = set(re.findall(r"(?:increase|rate)\((kvstored_\w+_total)", ALERTS))
    assert len(watched) > 5
    # A rate of hits needs some of them.
    assert {name for name in watched - at_zero if "_hit_" not in name} == {
        "kvstored_missed_chunks_total"
    }


def test_a_dashboard_has_panels_that_do_not_overlap() -> None:
    panels = json.loads((FOLDER / "dashboard.json").read_text())["panels"]
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
        assert panel["targets"]
