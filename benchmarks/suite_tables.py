"""Tables of a result of ``tests.stages``: what a run of the tests took, and where that went."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

SHOWN = 12
"""Rows of a table, the dearest."""
_HEAD = "tests | s | CPU s | setup and teardown s | daemons |\n|---|---|---|---|---|---|\n"


def suite_tables(results: Mapping[str, Any], names: Sequence[str]) -> str:
    """The named tables: ``stages``, ``all``, ``folders``, ``files``, ``fixtures``.

    Raises KeyError for another name, and for one of which the result has nothing.
    """
    return "\n".join(_table(results, name) for name in names)


def _table(results: Mapping[str, Any], name: str) -> str:
    if name == "stages":
        return "| stage | s |\n|---|---|\n" + "".join(_stages(results))
    costs = results["tests"][name]
    if name == "all":
        return f"| | {_HEAD}{_cost_row('all tests', costs)}"
    dearest = sorted(costs.items(), key=lambda pair: -pair[1]["s"])[:SHOWN]
    if name == "fixtures":
        rows = (f"| {key} | {cost['setups']} | {cost['s']:.1f} |\n" for key, cost in dearest)
        return f"| fixture | set-ups | s |\n|---|---|---|\n{''.join(rows)}"
    rows = (_cost_row(key, cost) for key, cost in dearest)
    return f"| {name.removesuffix('s')} | {_HEAD}{''.join(rows)}"


def _stages(results: Mapping[str, Any]) -> Iterator[str]:
    for name, stage in results["stages"].items():
        yield f"| {name}{' (failed)' if stage['status'] else ''} | {stage['s']:.0f} |\n"
    yield f"| all | {results['s']:.0f} |\n"


def _cost_row(name: str, cost: Mapping[str, float]) -> str:
    return (
        f"| {name} | {cost['tests']} | {cost['s']:.1f} | {cost['cpu_s']:.1f} "
        f"| {cost['setup_and_teardown_s']:.1f} | {cost['daemons']} |\n"
    )
