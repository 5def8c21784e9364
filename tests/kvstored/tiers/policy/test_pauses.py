from itertools import islice

from kvstored.tiers.policy.pauses import PAUSE_ITEMS, Pauses


def test_a_pause_comes_before_the_first_item_that_is_too_many() -> None:
    paused_at: list[int] = []
    seen = 0
    pauses = Pauses(lambda: paused_at.append(seen))
    for item in pauses.over(range(2 * PAUSE_ITEMS + 1)):
        assert item == seen
        seen += 1
    assert seen == 2 * PAUSE_ITEMS + 1
    assert paused_at == [PAUSE_ITEMS, 2 * PAUSE_ITEMS]


def test_many_short_loops_pause_as_one_long_one() -> None:
    pauses: list[int] = []
    of_all = Pauses(lambda: pauses.append(1))
    for _ in range(PAUSE_ITEMS):
        assert list(islice(of_all.over("abc"), 2)) == ["a", "b"]
    assert len(pauses) == 1


def test_without_a_pause_items_just_come() -> None:
    assert list(Pauses().over(range(2 * PAUSE_ITEMS))) == list(range(2 * PAUSE_ITEMS))
