from benchmarks.vllm.pic import FIGURES, series


def test_figure_is_the_ratio_of_each_round() -> None:
    figure, naive, *samples = series(
        {
            "computed": (1.0, 2.0),
            "linked": (0.5, 0.5),
            "linked_kept_tokens": (90.0, 80.0),
            "naive": (0.25, 1.0),
        }
    )
    assert (figure.key,) == FIGURES
    assert (figure.samples, naive.samples) == ((0.5, 0.25), (0.25, 0.5))
    assert [(one.key, one.unit) for one in samples] == [
        ("pic_computed_s", "s"),
        ("pic_linked_s", "s"),
        ("pic_linked_kept_tokens", "count"),
        ("pic_naive_s", "s"),
    ]
