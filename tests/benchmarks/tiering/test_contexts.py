from benchmarks.tiering.contexts import Context, contexts


def test_tokens_add_up_until_the_window_overflows() -> None:
    assert contexts([300, 400, 200, 200], 1000) == [
        Context(300, False, 0),
        Context(700, False, 300),
        Context(900, False, 700),
        Context(600, True, 400),
    ]


def test_an_overflow_drops_as_often_as_needed() -> None:
    assert contexts([900, 600], 1000) == [Context(900, False), Context(1000, True, 400)]
    assert contexts([900, 5000], 1000) == [Context(900, False), Context(1000, True)]
    assert contexts([5000], 1000) == [Context(1000, False)]
