"""Finds the settings at which fio is fastest: at a fixed shallow depth it is no ceiling."""

import random
import statistics
from collections.abc import Callable, Sequence

from benchmarks.fio import FioJob, FioResult, run_fio
from benchmarks.interleave import Alternative, Measured, Rounds, interleave

SWEEP_ROUNDS = Rounds(count=3, count_min=1, time_limit_s=30.0)


def best_job(
    jobs: Sequence[FioJob],
    *,
    generator: random.Random,
    announce: Callable[[str], None],
    rounds: Rounds = SWEEP_ROUNDS,
    run: Callable[[FioJob], FioResult] = run_fio,
) -> FioJob:
    """The job with the highest median rate over a few interleaved rounds."""

    def alternative(job: FioJob) -> Alternative:
        def measure() -> Measured:
            return {job.describe(): run(job).gb_per_s}

        return Alternative(run=measure)

    rates = interleave(
        [[alternative(job) for job in jobs]],
        rounds=rounds,
        generator=generator,
        announce=lambda text: announce(f"fio's best settings: {text}"),
    )
    return max(jobs, key=lambda job: statistics.median(rates[job.describe()]))
