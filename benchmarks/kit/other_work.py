"""A process that keeps one core busy half of the time: this file, with a seed."""

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

SHORTEST_S, LONGEST_S = 0.1, 1.0
"""Of one time of work or of rest, drawn evenly: from a part of a step to most of a restoration."""


@contextmanager
def other_work(seed: int) -> Iterator[None]:
    """Runs the process meanwhile."""
    # As a file: it needs nothing of the package, whose import would keep a core busy for seconds.
    process = subprocess.Popen([sys.executable, __file__, str(seed)])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def work(seed: int) -> None:
    """Works and rests in turn until it is killed."""
    generator = random.Random(seed)
    while True:
        stop_s = time.perf_counter() + generator.uniform(SHORTEST_S, LONGEST_S)
        while time.perf_counter() < stop_s:
            pass
        time.sleep(generator.uniform(SHORTEST_S, LONGEST_S))


if __name__ == "__main__":
    work(int(sys.argv[1]))
