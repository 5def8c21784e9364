"""What each test costs: a pytest plugin that writes it down, and a command that prints tables.

``python -m pytest -p tests.support.costs --costs FILE`` writes one JSON line for each test.
``python -m tests.support.costs FILE ...`` prints tables of such files. Works with pytest-xdist: the
controlling process writes the file. CPU time of daemons and engines that a
template forks is not in it.
"""

import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.support.template import DAEMON

FILES_SHOWN = 25
FIXTURES_SHOWN = 12
DECIMALS = 2
"""Of seconds, in sums."""
PHASES = ("setup", "call", "teardown")
FOLDER_DEPTH = 3
"""Of the folders whose tests are summed: tests, product, room."""


@dataclass(slots=True)
class TestCost:
    """One test; times in seconds of wall clock but for ``cpu_s``, which has waited-for children."""

    __test__: ClassVar[bool] = False
    """Pytest looks for tests in classes of such a name."""

    test: str
    setup_s: float = 0.0
    call_s: float = 0.0
    teardown_s: float = 0.0
    cpu_s: float = 0.0
    daemons: int = 0
    fixtures_s: dict[str, float] = field(default_factory=dict)

    @property
    def total_s(self) -> float:
        """All three phases."""
        return self.setup_s + self.call_s + self.teardown_s

    @property
    def file(self) -> str:
        """The file that the test is in."""
        return self.test.partition("::")[0]


class Meter:
    """In the process that runs tests: CPU, daemons and fixtures of the test under way."""

    def __init__(self) -> None:
        self._daemons = 0
        self._fixtures_s: dict[str, float] = {}
        sys.addaudithook(self._audit)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "kvstored.fork":
            self._daemons += arguments[0] == DAEMON
        elif event == "subprocess.Popen":
            words = [str(word) for word in arguments[1]]
            self._daemons += "run" in words and any("kvstored" in word for word in words)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Measures one test; its report carries the result to the process that writes the file."""
        self._daemons, self._fixtures_s = 0, {}
        item.user_properties.append(("costs", self._fixtures_s))
        self._fixtures_s["cpu_start_s"] = cpu_s()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[Any]:
        """Times one fixture."""
        start_s = time.monotonic()
        try:
            return (yield)
        finally:
            name = f"{fixturedef.baseid}::{fixturedef.argname}"
            spent_s = time.monotonic() - start_s
            self._fixtures_s[name] = self._fixtures_s.get(name, 0.0) + spent_s

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Iterator[Any]:
        """Adds to the last of a test's three reports what it cost."""
        if call.when == "teardown":
            self._fixtures_s["cpu_s"] = cpu_s() - self._fixtures_s.pop("cpu_start_s", cpu_s())
            self._fixtures_s["daemons"] = self._daemons
        return (yield)


class Writer:
    """In the controlling process: gathers reports and writes the file at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._costs: dict[str, TestCost] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Takes one phase of one test; the report of a process that died names no phase."""
        if report.when not in PHASES:
            return
        cost = self._costs.setdefault(report.nodeid, TestCost(report.nodeid))
        setattr(cost, f"{report.when}_s", report.duration)
        if report.when == "teardown":
            properties: dict[str, Any] = dict(report.user_properties)
            measured = dict(properties.get("costs", {}))
            cost.cpu_s = measured.pop("cpu_s", 0.0)
            cost.daemons = measured.pop("daemons", 0)
            cost.fixtures_s = measured

    def pytest_sessionfinish(self) -> None:
        """Writes the file."""
        lines = [json.dumps(asdict(cost)) for cost in self._costs.values()]
        self._path.write_text("".join(line + "\n" for line in lines))


def cpu_s() -> float:
    """CPU time of this process and of the children it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds ``--costs``."""
    parser.addoption("--costs", type=Path, help="write what each test costs to this file")


def pytest_configure(config: pytest.Config) -> None:
    """Measures where tests run, writes where they are reported."""
    path = config.getoption("--costs")
    if path is not None:
        config.pluginmanager.register(Meter())
        if not hasattr(config, "workerinput"):
            config.pluginmanager.register(Writer(path))


def read(paths: Iterable[Path]) -> list[TestCost]:
    """The costs in all of the files."""
    return [
        TestCost(**json.loads(line)) for path in paths for line in path.read_text().splitlines()
    ]


def table(title: str, groups: dict[str, list[TestCost]], shown: int) -> Iterator[str]:
    """The dearest groups as a Markdown table."""
    yield f"| {title} | tests | s | CPU s | setup and teardown s | daemons |"
    yield "|---|---|---|---|---|---|"
    for name, costs in sorted(groups.items(), key=lambda pair: -total_s(pair[1]))[:shown]:
        cost = summed(costs)
        yield (
            f"| {name} | {cost['tests']} | {cost['s']:.1f} | {cost['cpu_s']:.1f} "
            f"| {cost['setup_and_teardown_s']:.1f} | {cost['daemons']} |"
        )


def summed(costs: Sequence[TestCost]) -> dict[str, float]:
    """What a group of tests costs, by the columns of a table."""
    return {
        "tests": len(costs),
        "s": round(total_s(costs), DECIMALS),
        "cpu_s": round(sum(cost.cpu_s for cost in costs), DECIMALS),
        "setup_and_teardown_s": round(
            sum(cost.setup_s + cost.teardown_s for cost in costs), DECIMALS
        ),
        "daemons": sum(cost.daemons for cost in costs),
    }


def summary_of(costs: Sequence[TestCost]) -> dict[str, Any]:
    """What a result file has of a run: all tests, by folder, by file, and the fixtures."""
    groups = {"folders": grouped(costs, FOLDER_DEPTH), "files": grouped(costs, None)}
    return {
        "all": summed(costs),
        **{
            kind: {name: summed(group) for name, group in sorted(of_kind.items())}
            for kind, of_kind in groups.items()
        },
        "fixtures": dict(sorted(fixtures_of(costs).items())),
    }


def total_s(costs: Iterable[TestCost]) -> float:
    """All phases of all of them."""
    return sum(cost.total_s for cost in costs)


def grouped(costs: Iterable[TestCost], depth: int | None) -> dict[str, list[TestCost]]:
    """By the first ``depth`` parts of the file's path, or by file."""
    groups: dict[str, list[TestCost]] = defaultdict(list)
    for cost in costs:
        parts = cost.file.split("/")
        groups["/".join(parts if depth is None else parts[: min(depth, len(parts) - 1)])].append(
            cost
        )
    return groups


def fixtures_of(costs: Iterable[TestCost]) -> dict[str, dict[str, float]]:
    """Of each fixture the set-ups, and what all of them took."""
    spent_s: dict[str, list[float]] = defaultdict(list)
    for cost in costs:
        for name, fixture_s in cost.fixtures_s.items():
            spent_s[name].append(fixture_s)
    return {
        name: {"setups": len(times_s), "s": round(sum(times_s), DECIMALS)}
        for name, times_s in spent_s.items()
    }


def fixture_table(costs: Iterable[TestCost]) -> Iterator[str]:
    """The fixtures that took longest, all their set-ups together."""
    yield "| fixture | set-ups | s |"
    yield "|---|---|---|"
    dearest = sorted(fixtures_of(costs).items(), key=lambda pair: -pair[1]["s"])
    for name, cost in dearest[:FIXTURES_SHOWN]:
        yield f"| {name} | {cost['setups']} | {cost['s']:.1f} |"


def report(costs: list[TestCost]) -> Iterator[str]:
    """All tables."""
    yield from table("all", {"all": costs}, 1)
    yield ""
    yield from table("folder", grouped(costs, FOLDER_DEPTH), FILES_SHOWN)
    yield ""
    yield from table("file", grouped(costs, None), FILES_SHOWN)
    yield ""
    yield from fixture_table(costs)


if __name__ == "__main__":
    sys.stdout.write("\n".join([*report(read(map(Path, sys.argv[1:]))), ""]))
