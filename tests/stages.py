"""What ``make test``, ``make test-labs`` and ``make test-long`` run, stage by stage.

``python -m tests.stages test`` says first what it will do, then how far it is, and in the end how
long each stage took. It goes on after a stage that failed and exits with 1 then. Stages of one
step run beside each other; the output of all but the last of a step is shown when they end.
``--json FILE`` writes these times, and what the tests of each folder and file cost, as a result
that says from which commit and which machine it is.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from tests.faults.result_file import write_result
from tests.support.costs import read, summary_of
from tests.support.marked_files import alone_files, lab_files
from tests.support.pure_tests import pure_test_files

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
CORES = 2
LAB_WORKERS = 3
"""Labs wait for disks and for processes that start or end: a third one computes meanwhile."""
LONG_TIMEOUT_S = 3600
VLLM_PYTHON = ".venv-vllm/bin/python"
VLLM_TESTS = "tests/engine_adapters/vllm"
COSTS = Path("var/test-costs")
"""Where each stage of tests writes what every test cost (``tests/support/costs.py``)."""
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Two workers on two cores: a computing thread each."""


class Suite(StrEnum):
    """Each is a target of the Makefile, behind ``test-`` but for the first."""

    TEST = "test"
    LABS = "labs"
    LONG = "long"


@dataclass(frozen=True, slots=True)
class Stage:
    """One command; ``does`` says what for."""

    name: str
    does: str
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a stage ended, and after how long."""

    stage: Stage
    status: int
    seconds: float


Step = tuple[Stage, ...]
"""Stages that run beside each other."""


def tool(name: str, *arguments: str) -> tuple[str, ...]:
    """A command of the environment that this runs in."""
    return (str(BIN / name), *arguments)


def tests(name: str, does: str, *arguments: str) -> Stage:
    """A stage of tests, which writes what each of them cost."""
    plugin = ("-p", "tests.support.costs", "--costs", str(costs_of(name)))
    return Stage(name, does, (sys.executable, "-m", "pytest", "-q", *plugin, *arguments))


def costs_of(name: str) -> Path:
    """Where a stage writes what each of its tests cost."""
    return ROOT / COSTS / f"{name}.jsonl"


def shared_out(name: str, does: str, *arguments: str, worker_count: int = CORES) -> Stage:
    """A stage of tests in several processes, of which tests of one group share one."""
    return tests(name, does, "-n", str(worker_count), "--dist", "loadgroup", *arguments)


def steps(suite: Suite) -> list[Step]:
    """The steps of a suite, in order."""
    if suite is Suite.TEST:
        return test_steps()
    long = ("--timeout", str(LONG_TIMEOUT_S))
    marker, does, worker_count, more = {
        Suite.LABS: (QUICK, "labs at the size of every submission", LAB_WORKERS, ()),
        Suite.LONG: (LONG, "labs at their largest size", CORES, long),
    }[suite]
    beside = ("-m", f"{marker} and not alone and not vllm", *more, *lab_files())
    alone = ("-m", f"{marker} and alone and not vllm", *more, *alone_files())
    labs: list[Step] = [
        (shared_out(suite, does, *beside, worker_count=worker_count),),
        (tests(f"{suite}-alone", "labs that nothing may run beside", *alone),),
    ]
    # The other sizes of labs with real engines are in ``make test-vllm``.
    return [*labs, (vllm_labs(),)] if suite is Suite.LONG else labs


def vllm_labs() -> Stage:
    """The long labs of real engines, in the environment of ``make test-vllm``."""
    arguments = ("-m", f"vllm and {LONG}", "--timeout", str(LONG_TIMEOUT_S), VLLM_TESTS)
    stage = tests("long-vllm", "long labs of real vLLM engines", *arguments)
    return replace(stage, command=(VLLM_PYTHON, *stage.command[1:]))


TIDY = ("tests/tidy", "tests/test_tidy.py", "tests/benchmarks/test_registry.py")
"""Tests of the repository's text: syntax trees of all of it would slow a process of other tests."""
SMALL = "not quick and not long and not alone"
FOUND = (sys.executable, "-m", "tests.found", "-m", SMALL)
SMALL_ALONE = "alone and not quick and not long"
QUICK = "quick"
LONG = "long"


def test_steps() -> list[Step]:
    """Everything once; the tests of the pure parts apart, because a tracer slows them.

    They only compute, and run beside those that wait for disks and processes. All tests are
    imported once before, so that not each of these processes compiles what they import.
    """
    pure = pure_test_files()
    return [
        (
            Stage("lint", "style", tool("ruff", "check", ".")),
            Stage("format", "layout of the code", tool("ruff", "format", "--check", ".")),
            Stage("imports", "who may import whom", tool("lint-imports")),
            Stage("found", "all tests can be imported", FOUND),
            Stage("types", "types of products and tests", tool("mypy")),
        ),
        (
            tests("tidy", "how the repository is written", "-m", SMALL, *TIDY),
            tests("pure", "pure parts, every branch of them", "-m", SMALL, *pure, "--cov"),
            shared_out(
                "tests",
                "behaviour, and each lab that has a smallest size",
                *("-m", SMALL),
                *(f"--ignore={path}" for path in (*TIDY, *pure)),
            ),
        ),
        (tests("alone", "what nothing may run beside", "-m", SMALL_ALONE, *alone_files()),),
    ]


def announce(suite: Suite, plan: Sequence[Step]) -> None:
    """Says what will be done."""
    say(f"{suite}: {len(plan)} steps on {CORES} cores")
    for number, step in enumerate(plan, 1):
        for stage in step:
            say(f"  {number}. {stage.name}: {stage.does}")


def run_step(step: Step) -> Iterator[Ended]:
    """Runs its stages beside each other; the last one's output is shown as it comes."""
    *others, shown = step
    with (
        tempfile.TemporaryDirectory() as folder,
        ThreadPoolExecutor(max_workers=len(step)) as threads,
    ):
        outputs = [Path(folder, stage.name) for stage in others]
        ends = [threads.submit(run, *pair) for pair in zip(others, outputs, strict=True)]
        yield run(shown, None)
        for end, output in zip(ends, outputs, strict=True):
            ended = end.result()
            say(f"--- {ended.stage.name}")
            say(output.read_text(errors="replace").rstrip())
            yield ended


def run(stage: Stage, output: Path | None) -> Ended:
    """Runs one stage; what it prints goes to a file, if there is one."""
    started_s = time.monotonic()
    with contextlib.ExitStack() as files:
        file = None if output is None else files.enter_context(output.open("wb"))
        errors = None if file is None else subprocess.STDOUT
        status = subprocess.run(
            stage.command, stdout=file, stderr=errors, cwd=ROOT, check=False
        ).returncode
    return Ended(stage, status, time.monotonic() - started_s)


def summary(ends: Sequence[Ended], total_s: float) -> str:
    """One line for each stage, then the sum."""
    lines = [
        f"  {end.stage.name:<12} {'ok' if end.status == 0 else f'FAILED ({end.status})':<12} "
        f"{end.seconds:7.1f} s"
        for end in ends
    ]
    failed = [end.stage.name for end in ends if end.status]
    verdict = f"failed: {', '.join(failed)}" if failed else "everything passed"
    return "\n".join([*lines, f"  {verdict} in {total_s / 60:.1f} min"])


def result(suite: Suite, ends: Sequence[Ended], total_s: float) -> dict[str, object]:
    """What a result file says of a run: each stage, and where the time of the tests went."""
    paths = [costs_of(end.stage.name) for end in ends]
    costs = read(path for path in paths if path.exists())
    return {
        "suite": suite.value,
        "s": total_s,
        "stages": {end.stage.name: {"status": end.status, "s": end.seconds} for end in ends},
        "tests": summary_of(costs),
    }


def say(line: str) -> None:
    """Prints at once, so that it stands in order with what stages print."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """Runs one suite; 1 where a stage failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.stages", description=__doc__)
    parser.add_argument("suite", choices=list(Suite), type=Suite)
    parser.add_argument("--json", type=Path, metavar="FILE", help="where times are written as JSON")
    options = parser.parse_args()
    suite = options.suite
    os.environ.update(ONE_THREAD)
    (ROOT / COSTS).mkdir(parents=True, exist_ok=True)
    plan = steps(suite)
    for stage in (stage for step in plan for stage in step):
        # A stage that is cut off leaves none, and then no older ones either.
        costs_of(stage.name).unlink(missing_ok=True)
    announce(suite, plan)
    started_s = time.monotonic()
    ends: list[Ended] = []
    for number, step in enumerate(plan, 1):
        say(f"=== step {number} of {len(plan)}: {', '.join(stage.name for stage in step)}")
        ends += run_step(step)
    say(f"=== {suite}")
    total_s = time.monotonic() - started_s
    say(summary(ends, total_s))
    write_result(options.json, result(suite, ends, total_s))
    return int(any(end.status for end in ends))


if __name__ == "__main__":
    sys.exit(main())
