"""``python -m tests.faults.clients --count ROUNDS [--json FILE]``: the cost of a stopped client.

Prints each round and the medians; exits with 1 when the median ratio of the 99th percentiles,
with the stopped client to without, is above the promise.
"""

import argparse
import statistics
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.faults.clients.stopped import CLIENTS, RATIO_MAX, measure
from tests.faults.result_file import write_result
from tests.support.daemon import MIB, DaemonProcess


def say(text: str) -> None:
    """One line of the report."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    """Runs, reports, and returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.clients")
    parser.add_argument("--count", type=int, default=9, help="rounds (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="where the result goes as JSON")
    options = parser.parse_args()
    # Half of what the clients read lies in DRAM.
    overrides = {"dram": {"capacity_bytes": 8 * MIB}}
    with (
        tempfile.TemporaryDirectory(prefix="kvstored-") as folder,
        DaemonProcess(Path(folder), overrides=overrides) as daemon,
    ):
        results = measure(daemon, rounds=options.count)
    for number, result in enumerate(results):
        say(
            f"round {number}: p99 of {CLIENTS - 1} clients {result.alone_s * 1000:.2f} ms alone "
            f"({result.alone_count} operations), {result.stopped_s * 1000:.2f} ms with one "
            f"stopped ({result.stopped_count}), ratio {result.ratio:.3f}"
        )
    ratio = statistics.median(result.ratio for result in results)
    say(f"median ratio {ratio:.3f} of {len(results)} rounds; promised: at most {RATIO_MAX}")
    rounds = [asdict(result) for result in results]
    write_result(options.json, {"ratio": ratio, "rounds": rounds})
    return 0 if ratio <= RATIO_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
