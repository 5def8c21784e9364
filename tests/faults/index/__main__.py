"""Damaged indexes: `python -m tests.faults.index --count 20000 [--seed S] [--json FILE]`.

Changes one byte of the index's file for each of ``--count`` starts. Prints the seed and the
counts, and exits 1 at the first start that breaks a promise, with what repeats it.
"""

import argparse
import json
import logging
import sys
import time
from pathlib import Path

from tests.faults.index.flips import Flip, Violation, flip_bytes
from tests.faults.index.lab import Outcome, Stop
from tests.faults.result_file import write_result
from tests.support.seeds import of_command

SAID_EVERY_S = 30.0


class Progress:
    """Says now and then how far it is."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self._said_at = self.started
        self._count = 0

    def __call__(self, stop: Stop, flip: Flip, outcome: Outcome) -> None:
        self._count += 1
        if time.monotonic() - self._said_at > SAID_EVERY_S:
            self._said_at = time.monotonic()
            sys.stdout.write(f"{self._count} flips\n")
            sys.stdout.flush()


def main() -> None:
    """Reads the command line and runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="bytes to change")
    parser.add_argument("--seed", type=int, help="repeats a run")
    parser.add_argument("--json", type=Path, help="where the counts go")
    parser.add_argument(
        "--stops",
        nargs="+",
        choices=[stop.value for stop in Stop],
        default=[Stop.KILLED.value],
        help="how the store had stopped (default: %(default)s)",
    )
    options = parser.parse_args()
    chosen = of_command(options.seed)
    # Each index that is set aside is a line of the log.
    logging.disable(logging.CRITICAL)
    progress = Progress()
    try:
        report = flip_bytes(options.count, chosen, tuple(map(Stop, options.stops)), progress)
    except Violation as violation:
        sys.exit(str(violation))
    values = {**report.as_values(), "seconds": round(time.monotonic() - progress.started, 1)}
    sys.stdout.write(f"{json.dumps(values)}\n")
    write_result(options.json, values)


if __name__ == "__main__":
    main()
