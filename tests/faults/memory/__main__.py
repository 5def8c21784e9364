"""``python -m tests.faults.memory --count SECONDS [--seed S] [--json FILE]``: the soak.

Prints the daemon's memory after each phase; exits with 1 when it grew by more than the
promise, or when threads, descriptors or open tails stayed.
"""

import argparse
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.faults.memory.soak import GROWTH_MAX, OVERRIDES, TAILS, soak
from tests.faults.result_file import write_result
from tests.support.daemon import DaemonProcess
from tests.support.seeds import of_command

WARM_UP_PART = 0.1
WARM_UP_S_MIN = 240.0
PHASE_S = 60


def main() -> int:
    """Runs, reports, and returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.memory")
    parser.add_argument("--count", type=int, default=3600, help="seconds (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="of the load (default: a fresh one)")
    parser.add_argument("--json", type=Path, help="where the result goes as JSON")
    options = parser.parse_args()
    number = of_command(options.seed)
    with (
        tempfile.TemporaryDirectory(prefix="kvstored-") as folder,
        DaemonProcess(Path(folder), overrides=OVERRIDES, from_command=True) as daemon,
    ):
        report = soak(
            daemon,
            warm_up_s=max(WARM_UP_S_MIN, WARM_UP_PART * options.count),
            seconds=options.count,
            phases=max(1, options.count // PHASE_S),
            seed=number,
        )
        has_fault = "Traceback" in daemon.log
        sys.stdout.write(daemon.log[-2000:] if has_fault else "")
    sys.stdout.write(report.describe() + "\n")
    write_result(options.json, {"seed": number, "growth": report.growth, **asdict(report)})
    is_back = report.states[-1].is_back_at(report.states[0]) and report.tails == TAILS
    return 0 if report.growth <= GROWTH_MAX and is_back and not has_fault else 1


if __name__ == "__main__":
    sys.exit(main())
