"""CI leaves a result of its parts."""

from tests.ci_parts import result


def test_parts_are_written_as_stages_are() -> None:
    assert result(["setup=0:40", "test-labs=2:399"]) == {
        "command": ".ci/run",
        "suite": "ci",
        "s": 439,
        "stages": {"setup": {"status": 0, "s": 40}, "test-labs": {"status": 2, "s": 399}},
    }
