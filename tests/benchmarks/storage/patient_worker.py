"""The client process of the benchmark for a machine that is busy. Runs as a module, too.

The benchmark refuses a client that comes too late for a fair figure; its tests want none.
"""

import sys
import time
from dataclasses import asdict

from benchmarks.kit.line_process import LineProcess
from benchmarks.storage import worker
from benchmarks.storage.worker_process import WorkerProcess
from benchmarks.workload import Workload


class PatientProcess(WorkerProcess):
    """Whose worker begins at once where it comes too late."""

    def __init__(self, workload: Workload, seed: int) -> None:
        command = [sys.executable, "-m", __name__]
        LineProcess.__init__(self, command, name="a client process")
        self.send({"workload": asdict(workload), "seed": seed})


def sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


if __name__ == "__main__":
    worker.wait_until = sleep_until
    worker.main()
