"""Writes what the parts of CI took as a result.

``.ci/run`` calls ``python -m tests.ci_parts FILE PART=STATUS:SECONDS ...`` where ``CI_JSON`` names
a file.
"""

import argparse
from collections.abc import Iterable
from pathlib import Path

from tests.faults.result_file import write_result


def result(parts: Iterable[str]) -> dict[str, object]:
    """The parts in the form of stages (``tests/stages.py``)."""
    stages = {}
    for part in parts:
        name, _, ended = part.partition("=")
        status, seconds = map(int, ended.split(":"))
        stages[name] = {"status": status, "s": seconds}
    return {
        "command": ".ci/run",
        "suite": "ci",
        "s": sum(stage["s"] for stage in stages.values()),
        "stages": stages,
    }


def main() -> None:
    """Writes the file."""
    parser = argparse.ArgumentParser(prog="python -m tests.ci_parts", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("parts", nargs="+", metavar="PART=STATUS:SECONDS")
    options = parser.parse_args()
    write_result(options.file, result(options.parts))


if __name__ == "__main__":
    main()
