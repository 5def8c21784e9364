from engine_adapters.runner.restore.awaited_chunks import Patience


def test_only_waiting_counts() -> None:
    now_s = 10.0
    patience = Patience(5.0, lambda: now_s)
    now_s = 20.0
    assert patience.remaining_s() == 5.0
    patience.begin_wait()
    now_s = 22.0
    patience.begin_wait()
    assert (patience.waited_s, patience.remaining_s()) == (2.0, 3.0)
    patience.end_wait()
    patience.end_wait()
    now_s = 30.0
    assert (patience.waited_s, patience.remaining_s()) == (2.0, 3.0)
    patience.begin_wait()
    now_s = 40.0
    assert patience.remaining_s() == 0.0
