"""The tables of a document, written from the results beside it: no figure is copied by hand.

``python -m benchmarks.tables README.md docs/*.md`` fills every stretch between
``<!-- results NAME PATTERN... -->`` and ``<!-- end -->`` with the figures of
``results/NAME.json`` and those other series whose keys match a pattern. Of a run of the tests the
patterns are names of tables (``benchmarks/suite_tables.py``). It also writes into each link to a
result which commit that measured.
"""

import json
import re
import statistics
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from benchmarks.quotes import with_ages
from benchmarks.results import age_of
from benchmarks.suite_tables import suite_tables

_STRETCH = re.compile(r"(<!-- results (\S+)((?: \S+)*) -->\n).*?(<!-- end -->)", re.DOTALL)
_HEAD = "| | value | median | min | max | samples |\n|---|---|---|---|---|---|\n"


def filled(text: str, folder: Path) -> str:
    """``text`` with every table and age written again; raises OSError where results are missing."""

    def age(name: str) -> str:
        return str(age_of(folder / f"{name}.json"))

    def stretch(match: re.Match[str]) -> str:
        results = json.loads((folder / f"{match[2]}.json").read_text())
        return match[1] + table(results, age(match[2]), match[3].split()) + match[4]

    return _STRETCH.sub(stretch, with_ages(text, age))


def results_folder(document: Path) -> Path:
    """Where the results lie that a document of ``docs``, or the README above it, shows."""
    above = document.parent / "docs" / "results"
    return above if above.is_dir() else document.parent / "results"


def table(results: dict[str, Any], age: str, patterns: list[str]) -> str:
    """Command and age, whether the run was quick, and what ``patterns`` choose."""
    chosen = suite_tables if "suite" in results else _series
    size = ", quick" if results.get("quick") else ""
    return f"\nMade by `{results['command']}`, {age}{size}:\n\n{chosen(results, patterns)}\n"


def _series(results: dict[str, Any], patterns: list[str]) -> str:
    """The figures, and then what else matches, in the order measured."""
    figures, samples = results["figures"], results["samples"]
    others = [
        key
        for key in samples
        if key not in figures and any(fnmatch(key, pattern) for pattern in patterns)
    ]
    rows = [_row(f"**`{key}`**", samples[key], figures[key]) for key in figures]
    rows += [_row(f"`{key}`", samples[key], None) for key in others]
    return f"{_HEAD}{''.join(rows)}"


def _row(name: str, samples: list[float], value: float | None) -> str:
    numbers = (statistics.median(samples), min(samples), max(samples))
    cells = [name, "" if value is None else f"{value:.3f}", *(f"{x:.3f}" for x in numbers)]
    return f"| {' | '.join(cells)} | {len(samples)} |\n"


def main(paths: list[str]) -> None:
    """Fills the tables of each document, from the folder of its results."""
    for path in map(Path, paths):
        path.write_text(filled(path.read_text(), results_folder(path)))


if __name__ == "__main__":
    main(sys.argv[1:])
