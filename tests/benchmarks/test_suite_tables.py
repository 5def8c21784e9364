"""What a run of the tests took, as documents show it."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.suite_tables import SHOWN, suite_tables
from benchmarks.tables import filled

COST = {"tests": 2, "s": 3.14, "cpu_s": 1.0, "setup_and_teardown_s": 0.25, "daemons": 1}
RUN: dict[str, Any] = {
    "command": "python -m tests.stages test",
    "suite": "test",
    "s": 99.6,
    "stages": {"tests": {"status": 0, "s": 60.4}, "lint": {"status": 1, "s": 2.0}},
    "tests": {
        "all": COST,
        "folders": {"b": COST, "a": {**COST, "s": 4.0}},
        "files": {str(number): {**COST, "s": number} for number in range(2 * SHOWN)},
        "fixtures": {"daemon": {"setups": 3, "s": 0.16}},
    },
}


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("stages", ["| tests | 60 |", "| lint (failed) | 2 |", "| all | 100 |"]),
        ("all", ["| all tests | 2 | 3.1 | 1.0 | 0.2 | 1 |"]),
        ("folders", ["| a | 2 | 4.0 | 1.0 | 0.2 | 1 |", "| b | 2 | 3.1 | 1.0 | 0.2 | 1 |"]),
        ("fixtures", ["| daemon | 3 | 0.2 |"]),
    ],
)
def test_the_dearest_come_first(name: str, lines: list[str]) -> None:
    head, dashes, *rows = suite_tables(RUN, [name]).splitlines()
    assert rows == lines
    assert head.count("|") == dashes.count("|") == rows[0].count("|")


def test_only_the_dearest_are_shown() -> None:
    first, *_, last = suite_tables(RUN, ["files"]).splitlines()[2:]
    assert (first.split()[1], last.split()[1]) == (str(2 * SHOWN - 1), str(SHOWN))


def test_what_a_result_has_not_got_is_an_error() -> None:
    with pytest.raises(KeyError):
        suite_tables(RUN, ["speed"])


def test_a_document_shows_them(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(RUN))
    text = filled("<!-- results run stages all -->\n<!-- end -->\n", tmp_path)
    assert "Made by `python -m tests.stages test`, commit unknown:\n\n| stage | s |" in text
    assert "| all | 100 |\n\n| | tests | s |" in text
