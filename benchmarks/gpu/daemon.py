"""The daemon itself on this machine: parts of ``storage --quick``, as far as there is time."""

import shutil
from collections.abc import Iterator
from dataclasses import replace

from benchmarks.benchmark import BenchmarkError, Settings
from benchmarks.gpu.time_budget import TimeBudget
from benchmarks.report import Series
from benchmarks.storage.run import NEEDS_FIO, measure
from benchmarks.storage.scale import QUICK

FIGURES: tuple[str, ...] = ()
PART_S = 35.0
"""What a part takes about, by the results of ``make test-labs``."""


def run(settings: Settings, parts: tuple[str, ...], budget: TimeBudget) -> list[Series]:
    """Each part's series, with ``storage_`` before their keys; parts left out are written down."""
    return list(_measured(settings, parts, budget))


def _measured(settings: Settings, parts: tuple[str, ...], budget: TimeBudget) -> Iterator[Series]:
    for part in parts:
        name = f"daemon {part}"
        if part in NEEDS_FIO and shutil.which("fio") is None:
            budget.leave_out(name, "it compares with fio, which is not here")
            continue
        if not budget.allows(name, PART_S):
            continue
        try:
            found = measure(replace(settings, quick=True, parts=(part,)), QUICK)
        except BenchmarkError as error:
            budget.leave_out(name, str(error).splitlines()[0])
            continue
        yield from (replace(one, key=f"storage_{one.key}", is_figure=False) for one in found)
