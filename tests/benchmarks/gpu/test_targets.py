from benchmarks.gpu.run import FIGURES
from benchmarks.gpu.targets import TARGETS, verdicts


def test_every_figure_has_a_target() -> None:
    assert sorted(target.figure for target in TARGETS) == sorted(FIGURES)


def test_a_figure_at_its_limit_is_met_and_beyond_it_is_missed() -> None:
    for sign, word in ((0, "met"), (1, "MISSED")):
        figures = {
            target.figure: target.limit + sign * (-0.01 if target.is_least else 0.01)
            for target in TARGETS
        }
        assert {one.word for one in verdicts(figures)} == {word}


def test_what_was_left_out_is_no_verdict() -> None:
    found = verdicts({"gpu_tokens_equal": 1.0})
    assert [one.word for one in found if one.value is not None] == ["met"]
    assert {one.word for one in found if one.value is None} == {"not measured"}
