import pytest

from kvstored.tiers.policy.expiry import Expiry


def test_keys_expire_after_their_last_use() -> None:
    keys: Expiry[str] = Expiry(10)
    assert keys.next_s() is None
    for now_s, key in enumerate("abca"):
        keys.use(key, now_s)
    assert (len(keys), keys.next_s()) == (3, 11)
    assert list(keys.expired(10.9)) == []
    assert list(keys.expired(12)) == ["b", "c"]
    assert [keys.has_expired(key, 12) for key in "abcx"] == [False, True, True, False]
    for key in ("b", "b"):
        keys.remove(key)
    assert list(keys.expired(100)) == ["c", "a"]


def test_a_time_to_live_is_positive() -> None:
    with pytest.raises(ValueError, match="time to live"):
        Expiry[str](0)
