"""Stages run beside each other, and a run of them writes its times."""

import json
import threading
from dataclasses import asdict
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import stages
from tests.stages import Ended, Stage, Suite, result, run_step
from tests.support.costs import TestCost


def test_a_result_has_each_stage_and_what_tests_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stages that ran no tests, and those that were cut off, have left no costs."""
    monkeypatch.setattr(stages, "ROOT", tmp_path)
    costs = [
        TestCost(
            "tests/kvstored/io/test_a.py::test_one",
            1.0,
            2.0,
            3.0,
            cpu_s=4.0,
            daemons=1,
            fixtures_s={"tests::daemon": 0.126},
        ),
        TestCost("tests/kvstored/io/test_b.py::test_two[x/y]", call_s=1.0),
        TestCost("tests/test_tidy.py::test_three", call_s=5.0),
    ]
    path = stages.costs_of("tests")
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(asdict(cost)) + "\n" for cost in costs))
    ends = [
        Ended(Stage("tests", "behaviour", ("pytest",)), 1, 12.0),
        Ended(Stage("lint", "style", ("ruff",)), 0, 3.0),
    ]
    assert json.loads(json.dumps(result(Suite.TEST, ends, 15.0))) == {
        "suite": "test",
        "s": 15.0,
        "stages": {"tests": {"status": 1, "s": 12.0}, "lint": {"status": 0, "s": 3.0}},
        "tests": {
            "all": cost(3, 12.0, 4.0, 4.0, 1),
            "folders": {
                "tests": cost(1, 5.0),
                "tests/kvstored/io": cost(2, 7.0, 4.0, 4.0, 1),
            },
            "files": {
                "tests/kvstored/io/test_a.py": cost(1, 6.0, 4.0, 4.0, 1),
                "tests/kvstored/io/test_b.py": cost(1, 1.0),
                "tests/test_tidy.py": cost(1, 5.0),
            },
            "fixtures": {"tests::daemon": {"setups": 1, "s": 0.13}},
        },
    }


def test_long_labs_of_real_engines_run_where_vllm_is() -> None:
    """Bug: one environment had no vLLM, the other one left long labs out."""
    *others, (last,) = stages.steps(Suite.LONG)
    assert last.command[0] == stages.VLLM_PYTHON
    assert {"vllm and long", stages.VLLM_TESTS} <= set(last.command)
    for (stage,) in others:
        assert any(word.endswith("and not vllm") for word in stage.command)
    assert all(stage.name != last.name for step in stages.steps(Suite.LABS) for stage in step)


def cost(
    tests: int, s: float, cpu_s: float = 0, setup_and_teardown_s: float = 0, daemons: int = 0
) -> dict[str, float]:
    return {
        "tests": tests,
        "s": s,
        "cpu_s": cpu_s,
        "setup_and_teardown_s": setup_and_teardown_s,
        "daemons": daemons,
    }


def test_each_stage_of_a_step_has_a_time_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bug: stages that ended early took as long as the last one of their step.

    The clock goes on only where the last one is waited for.
    """
    here, numbers = threading.current_thread(), count()
    clock = SimpleNamespace(
        monotonic=lambda: float(next(numbers)) if threading.current_thread() is here else 0.0
    )
    monkeypatch.setattr(stages, "time", clock)
    early = Stage("early", "", ("sh", "-c", "echo said; exit 3"))
    shown = Stage("shown", "", ("true",))
    assert list(run_step((early, shown))) == [Ended(shown, 0, 1.0), Ended(early, 3, 0.0)]
    assert "--- early\nsaid\n" in capsys.readouterr().out
