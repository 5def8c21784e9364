"""A release's bit flips: `python -m tests.faults.media --count 1000000 [--seed S] [--json FILE]`.

Prints the seed and the counts, and exits 1 at the first flip that is not detected, with what
repeats it.
"""

import argparse
import json
import logging
import sys
import time
from collections import Counter
from pathlib import Path

from tests.faults.media.flips import flip_bits
from tests.faults.media.flips_target import Verdict, Violation
from tests.faults.result_file import write_result
from tests.support.seeds import of_command


def main() -> None:
    """Reads the command line and runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000, help="bits to flip")
    parser.add_argument("--seed", type=int, help="repeats a run")
    parser.add_argument("--json", type=Path, help="where the counts go")
    options = parser.parse_args()
    chosen = of_command(options.seed)
    # Each chunk in quarantine is a line of the log.
    logging.getLogger("kvstored").addHandler(logging.NullHandler())
    started = time.monotonic()
    try:
        report = flip_bits(options.count, chosen, say)
    except Violation as violation:
        sys.exit(f"not detected: {violation}")
    values = {**report.as_values(), "seconds": round(time.monotonic() - started, 1)}
    sys.stdout.write(f"{json.dumps(values)}\n")
    write_result(options.json, values)


def say(name: str, counts: Counter[Verdict]) -> None:
    """One line for each target."""
    parts = ", ".join(f"{count} {verdict.value}" for verdict, count in counts.items())
    sys.stdout.write(f"{name}: {parts}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
