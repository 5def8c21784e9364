from kvstored.tiers.policy.bundles import Bundles, parts


def joined(bundles: Bundles[str], keys: str) -> str:
    """The bundle that keys are in after a use, the last first."""
    bundle = bundles.join(tuple(keys))
    return "" if bundle is None else "".join(bundle)


def test_a_key_is_in_the_bundle_that_used_it_last() -> None:
    bundles: Bundles[str] = Bundles()
    assert joined(bundles, "abc") == "cba"
    assert joined(bundles, "abd") == "dba"
    left = bundles.of("c")
    assert left is not None
    assert list(left) == ["c"]


def test_a_key_alone_is_in_none() -> None:
    bundles: Bundles[str] = Bundles()
    assert joined(bundles, "a") == ""
    assert bundles.of("a") is None
    bundles.leave("a")
    assert joined(bundles, "ab") == "ba"
    bundles.leave("a")
    assert joined(bundles, "b") == "b"


def test_what_follows_the_last_key_goes_with_the_others() -> None:
    bundles: Bundles[str] = Bundles()
    joined(bundles, "abc")
    assert joined(bundles, "cde") == "edcba"
    assert joined(bundles, "bf") == "fb"
    assert joined(bundles, "eg") == "gedca"


def test_a_use_of_the_whole_bundle_moves_nothing() -> None:
    bundles: Bundles[str] = Bundles()
    joined(bundles, "abc")
    before = bundles.of("a")
    assert joined(bundles, "cab") == "cba"
    assert bundles.of("a") is before


def test_after_a_gap_at_the_end_nothing_follows() -> None:
    """Nobody can tell what of the sequence is missing there."""
    bundles: Bundles[str] = Bundles()
    joined(bundles, "abc")
    bundles.leave("b")
    bundles.leave("c")
    assert joined(bundles, "ad") == "da"
    assert [key for key in "abcd" if bundles.of(key)] == ["a", "d"]


def test_each_part_continues_the_one_before() -> None:
    assert [list(parts("abcdefg"[:count], 3)) for count in range(8)] == [
        [],
        ["a"],
        ["ab"],
        ["abc"],
        ["abc", "cd"],
        ["abc", "cde"],
        ["abc", "cde", "ef"],
        ["abc", "cde", "efg"],
    ]
