from benchmarks.storage.overtaken import ahead_count


def test_what_came_before_others_nearer_to_the_tail() -> None:
    assert ahead_count([False, False, True, True]) == 0
    assert ahead_count([True, False, True, False, True]) == 2
    assert ahead_count([True, True]) == 0
    assert ahead_count([False, False]) == 0
