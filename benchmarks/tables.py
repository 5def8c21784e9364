"""The tables of a document, written from the results beside it: no figure is copied by hand.

``python -m benchmarks.tables docs/performance.md`` fills every stretch between
``<!-- results NAME PATTERN... -->`` and ``<!-- end -->`` with the figures of
``results/NAME.json`` and those other series whose keys match a pattern.
"""

import json
import re
import statistics
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

_STRETCH = re.compile(r"(<!-- results (\S+)((?: \S+)*) -->\n).*?(<!-- end -->)", re.DOTALL)
_HEAD = "| | value | median | min | max | samples |\n|---|---|---|---|---|---|\n"


def filled(text: str, folder: Path) -> str:
    """``text`` with every table made anew; raises OSError where results are missing."""

    def stretch(match: re.Match[str]) -> str:
        results = json.loads((folder / f"{match[2]}.json").read_text())
        return match[1] + table(results, match[3].split()) + match[4]

    return _STRETCH.sub(stretch, text)


def table(results: dict[str, Any], patterns: list[str]) -> str:
    """The command, the figures, and behind them what else matches, in the order measured."""
    figures, samples = results["figures"], results["samples"]
    others = [
        key
        for key in samples
        if key not in figures and any(fnmatch(key, pattern) for pattern in patterns)
    ]
    rows = [_row(f"**`{key}`**", samples[key], figures[key]) for key in figures]
    rows += [_row(f"`{key}`", samples[key], None) for key in others]
    return f"\nMade by `{results['command']}`:\n\n{_HEAD}{''.join(rows)}\n"


def _row(name: str, samples: list[float], value: float | None) -> str:
    numbers = (statistics.median(samples), min(samples), max(samples))
    cells = [name, "" if value is None else f"{value:.3f}", *(f"{x:.3f}" for x in numbers)]
    return f"| {' | '.join(cells)} | {len(samples)} |\n"


def main(paths: list[str]) -> None:
    """Fills the tables of each document, from the folder ``results`` beside it."""
    for path in map(Path, paths):
        path.write_text(filled(path.read_text(), path.parent / "results"))


if __name__ == "__main__":
    main(sys.argv[1:])
