"""The table of all labs; ``python -m tests.support.lab_table DOCUMENT`` writes it.

It stands between ``<!-- labs -->`` and ``<!-- end -->``. The last cell has what all tests of the
file of a lab took at each size, in the first row of that file: by the results that ``make test``,
``make test-labs`` and ``make test-long`` left in ``docs/results`` (``tests/stages.py``).
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.labs import labs
from tests.support.scale import EVERY, Scale

RESULTS = Path(__file__).parents[2] / "docs" / "results"
RESULT_OF = {Scale.SMOKE: "test_stages", Scale.QUICK: "labs_stages", Scale.LONG: "long_stages"}
_STRETCH = re.compile(r"(<!-- labs -->\n).*?(<!-- end -->)", re.DOTALL)


def size_text(size: int | None) -> str:
    """A size as a table has it."""
    if size is None:
        return ""
    return "every one" if size == EVERY else f"{size:,}"


def rows() -> Iterator[tuple[str, ...]]:
    """The cells of each row: promise, file, cases, and the three sizes."""
    for lab in labs().values():
        sizes = map(size_text, (lab.smoke, lab.quick, lab.long))
        yield (lab.promise, f"`{lab.file}`", lab.cases, *sizes)


def seconds(folder: Path) -> dict[tuple[str, Scale], float]:
    """What the tests of each file took at each size, by the results that are there."""
    spent_s = {}
    for scale, name in RESULT_OF.items():
        path = folder / f"{name}.json"
        files = json.loads(path.read_text())["tests"]["files"] if path.exists() else {}
        for file, cost in files.items():
            spent_s[file.removeprefix("tests/"), scale] = cost["s"]
    return spent_s


def table(folder: Path) -> Iterator[str]:
    """The lines of the table; ``-`` where a size did not run."""
    spent_s = seconds(folder)
    yield f"| promise | lab | cases | {' | '.join(Scale)} | s at {', '.join(Scale)} |"
    yield "|---|---|---|---|---|---|---|"
    told: set[str] = set()
    for lab, cells in zip(labs().values(), rows(), strict=True):
        times = (spent_s.get((lab.file, scale)) for scale in Scale)
        time = ", ".join("-" if value is None else f"{value:.0f}" for value in times)
        yield f"| {' | '.join(cells)} | {'' if lab.file in told else time} |"
        told.add(lab.file)


def filled(text: str, folder: Path = RESULTS) -> str:
    """A document with its table written again."""
    lines = "".join(f"{line}\n" for line in table(folder))
    return _STRETCH.sub(lambda match: f"{match[1]}{lines}{match[2]}", text)


if __name__ == "__main__":
    for document in map(Path, sys.argv[1:]):
        document.write_text(filled(document.read_text()))
