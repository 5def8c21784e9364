"""The release-size run: `python -m tests.faults.power --count 250000`.

Prints counts and seeds; exits 1 at the first state that breaks a promise, and keeps its
recording: `--recording FOLDER` with the same count and seed looks at the same states.
"""

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.faults.power.lab import STATES_PER_LAB, examine_recording, run_labs
from tests.faults.power.recording import strace_problem
from tests.faults.result_file import write_result


def main() -> int:
    """Runs labs until the states are enough."""
    options = _options()
    problem = strace_problem()
    if problem is not None:
        sys.exit(problem)
    _say(f"seed {options.seed}")
    if options.recording:
        labs = iter([examine_recording(options.recording, seed=options.seed, count=options.count)])
    else:
        base = Path(tempfile.mkdtemp(prefix="kvstored-power-"))
        labs = run_labs(
            base, seed=options.seed, count=options.count, count_per_lab=options.count_per_lab
        )
    reports = []
    for report in labs:
        reports.append(report)
        _say(
            f"lab {len(reports)}, seed {report.seed}: {report.state_count} states of "
            f"{report.moment_count} moments in {report.elapsed_s:.0f} s"
        )
    broken = reports[-1].broken
    result = {
        "seed": options.seed,
        "labs": len(reports),
        "moments": sum(report.moment_count for report in reports),
        "states": sum(report.state_count for report in reports),
        "seconds": round(sum(report.elapsed_s for report in reports)),
        "harmless": dict(sum((Counter(report.seen) for report in reports), Counter())),
        "broken": broken,
    }
    _say(json.dumps(result, indent=2))
    write_result(options.json, result)
    if broken:
        last = reports[-1]
        again = f"--recording {last.folder} --seed {last.seed} --count {last.wanted_count}"
        _say(f"again: {again}")
    elif not options.recording:
        base.rmdir()
    return 1 if broken else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.power", description=__doc__)
    parser.add_argument("--count", type=int, default=250_000, help="states to look at")
    parser.add_argument("--count-per-lab", type=int, default=STATES_PER_LAB, help="of one workload")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--json", type=Path, help="a file for the result")
    parser.add_argument("--recording", type=Path, help="a recording that a run has kept")
    return parser.parse_args()


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
