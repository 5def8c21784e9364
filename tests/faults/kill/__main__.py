"""Kills at the size of a release: ``python -m tests.faults.kill --count 5000``."""

import argparse
import json
import logging
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from tests.faults.kill.doomed import DOOMED
from tests.faults.kill.ledger import ViolationError
from tests.faults.kill.random_kills import Plan, run
from tests.faults.result_file import write_result
from tests.support.seeds import of_command
from tests.support.template import Template

CHECK_EVERY = 100
EVICTING_SHARE = 0.4
"""Part of the kills that hit a full store."""


def main() -> int:
    """Prints counts and seed; 1 at the first promise that is broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.kill", description=__doc__)
    parser.add_argument("--count", type=int, default=5000, help="kills (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="of an earlier run (default: a new one)")
    parser.add_argument("--json", type=Path, help="file for the result")
    options = parser.parse_args()
    # Every kill ends calls of clients: that is no news here.
    logging.getLogger("kvstored_client").setLevel(logging.ERROR)
    chosen = of_command(options.seed)
    evicting = int(options.count * EVICTING_SHARE)
    result: dict[str, object] = {"seed": chosen, "count": options.count}
    for kind, count in (("churn", options.count - evicting), ("evict", evicting)):
        began_at = time.monotonic()
        plan = Plan(kill_count=count, seed=chosen, evicts=kind == "evict", check_every=CHECK_EVERY)
        try:
            with (
                tempfile.TemporaryDirectory() as folder,
                Template(DOOMED.partition(":")[0]) as template,
            ):
                outcome = run(Path(folder), template, plan)
            outcome.judge_starts()
        except ViolationError as error:
            sys.stdout.write(f"{kind}, seed {chosen}: {error}\n")
            return 1
        result[kind] = {**asdict(outcome), "seconds": round(time.monotonic() - began_at, 1)}
        sys.stdout.write(f"{kind}: {json.dumps(result[kind])}\n")
        sys.stdout.flush()
    write_result(options.json, result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
