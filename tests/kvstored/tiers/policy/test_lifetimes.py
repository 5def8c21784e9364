import pytest

from kvstored.tiers.policy.lifetimes import LOOK_S_MAX, KeyAges, Lifetimes, UseMarks

LIFETIMES = Lifetimes(default_s=10, by_namespace={b"a": 3, b"k": None})
Key = tuple[bytes, int]


def ages(lifetimes: Lifetimes = LIFETIMES) -> KeyAges[Key]:
    return KeyAges(lifetimes, lambda key: key[0])


def test_a_namespace_has_its_own_time_or_that_of_all() -> None:
    assert [LIFETIMES.of(name) for name in (b"a", b"k", b"x")] == [3, None, 10]
    assert LIFETIMES.all_s == {3, 10}
    assert Lifetimes().all_s == set()


@pytest.mark.parametrize(("ttl_s", "look_s"), [(64, 1.0), (7 * 24 * 3600, LOOK_S_MAX)])
def test_looks_follow_each_other_soon_enough(ttl_s: float, look_s: float) -> None:
    assert Lifetimes(default_s=ttl_s).look_s == look_s


def test_keys_expire_by_the_time_of_their_namespace() -> None:
    keys = ages()
    used = [(b"a", 1), (b"k", 2), (b"x", 3)]
    for key in used:
        keys.use(key, 0)
    assert set(keys.expired(3)) == {(b"a", 1)}
    assert set(keys.expired(1000)) == {(b"a", 1), (b"x", 3)}
    assert [keys.has_expired(key, 5) for key in used] == [True, False, False]
    keys.use((b"a", 1), 4)
    assert set(keys.expired(5)) == set()
    for key in used:
        keys.remove(key)
    assert set(keys.expired(1000)) == set()


def test_uses_before_a_mark_expire_with_it() -> None:
    marks = UseMarks(LIFETIMES)
    marks.look(1, 0)
    assert [marks.of(name) for name in (b"a", b"k", b"x")] == [0, 0, 0]
    marks.look(5, 1)
    marks.look(9, 2)
    assert (marks.of(b"a"), marks.default) == (0, 0)
    marks.look(9, 4)
    assert (marks.of(b"a"), marks.of(b"x"), marks.default) == (5, 0, 0)
    assert dict(marks.named()) == {b"a": 5, b"k": 0}
    marks.look(9, 12)
    assert (marks.of(b"a"), marks.of(b"x"), marks.default) == (9, 9, 9)


def test_looks_without_uses_do_not_put_expiry_off() -> None:
    marks = UseMarks(Lifetimes(default_s=10))
    for now_s in range(10):
        marks.look(7, now_s)
    assert marks.default == 0
    marks.look(7, 10)
    assert marks.default == 7


def test_marks_of_a_long_time_grew_with_the_looks_of_a_short_one() -> None:
    """Bug: up to one for each look while the longest time passed, which are hundreds of MB."""
    long_s = 4096.0
    marks = UseMarks(Lifetimes(default_s=long_s, by_namespace={b"a": 1}))
    looks = 4000
    for look in range(looks):
        marks.look(2 + look, look / 4)
    assert len(marks._marks[long_s]) == looks // 4
    assert len(marks._marks[1]) == 4
    marks.look(10_000, looks / 4)
    assert marks.of(b"a") == 2 + looks - 4
    marks.look(10_000, long_s + 10)
    assert marks.default == 2 + 10 * 4


def test_without_a_time_nothing_expires() -> None:
    marks = UseMarks(Lifetimes(by_namespace={b"a": 1}))
    marks.look(3, 0)
    marks.look(3, 5)
    assert (marks.default, marks.of(b"x"), marks.of(b"a")) == (0, 0, 3)
