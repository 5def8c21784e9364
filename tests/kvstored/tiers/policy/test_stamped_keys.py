from kvstored.tiers.policy.stamped_keys import StampedKeys


def test_order_within_and_across_groups() -> None:
    keys: StampedKeys[str] = StampedKeys()
    assert list(keys.keys()) == list(keys.keys(1)) == []
    for key, group in (("a", 1), ("b", 2), ("c", 1), ("a", 2)):
        keys.append(key, group)
    assert list(keys.keys()) == ["b", "c", "a"]
    assert list(keys.keys(2)) == ["b", "a"]
    assert (keys.first(1), keys.first(3), keys.count(2), keys.count(3)) == ("c", None, 2, 0)
    assert (keys.group_of("a"), keys.group_of("z"), len(keys), "z" in keys) == (2, None, 3, False)
    assert keys.stamp("b") < keys.stamp("c") < keys.stamp("a")
    assert keys.groups == [1, 2]
    assert (keys.remove("b"), keys.remove("b")) == (True, False)
    assert list(keys.keys()) == ["c", "a"]


def test_a_move_says_when_the_key_came_before() -> None:
    keys: StampedKeys[str] = StampedKeys()
    for key in "abc":
        keys.append(key, 1)
    before = keys.stamp("a")
    assert (keys.move("a", 1, 1), list(keys.keys(1))) == (before, ["b", "c", "a"])
    before = keys.stamp("b")
    assert (keys.move("b", 1, 2), list(keys.keys(1)), keys.group_of("b")) == (before, ["c", "a"], 2)
    assert list(keys.keys()) == ["c", "a", "b"]


def test_stamped_keys_come_in_the_order_of_their_stamps() -> None:
    keys: StampedKeys[str] = StampedKeys()
    for key, group in (("a", 1), ("b", 2), ("c", 1), ("d", 3)):
        keys.append(key, group)
    assert list(keys.stamped([1, 2])) == [(key, keys.stamp(key)) for key in "abc"]
    assert list(keys.stamped([1])) == [(key, keys.stamp(key)) for key in "ac"]
    assert list(keys.stamped([4])) == list(keys.stamped([])) == []
    assert keys.groups == [1, 2, 3]
