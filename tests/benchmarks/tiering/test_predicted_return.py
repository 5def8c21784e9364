import pytest

from benchmarks.tiering.future import Future
from benchmarks.tiering.policies import PolicyName, make_policy
from benchmarks.tiering.predicted_return import LATE_GAPS, PredictedReturnPolicy
from tests.kvstored.tiers.policy.eviction_conformance import EvictionConformance, PlainTier


class TestPredictedReturnPolicy(EvictionConformance):
    @pytest.fixture
    def tier(self) -> PlainTier:
        return PlainTier(PredictedReturnPolicy())


def policy_of(uses: str) -> PredictedReturnPolicy[str]:
    """After one use of a key after the other, at 1, 2, 3."""
    policy: PredictedReturnPolicy[str] = PredictedReturnPolicy()
    for key in uses:
        if key in policy.victims():
            policy.touch([key])
        else:
            policy.insert(key, 1)
    return policy


def test_before_any_gap_is_known_the_order_is_that_of_the_last_uses() -> None:
    assert list(policy_of("abc").victims()) == ["a", "b", "c"]


def test_what_is_expected_last_goes_first() -> None:
    # A gap of 1 is all that is known: a is expected at 3, x at 4, y at 5.
    assert list(policy_of("aaxy").victims()) == ["y", "x", "a"]


def test_a_key_is_expected_by_its_own_gaps() -> None:
    # At 6: a is late, b is expected at 9, d at 6 and c at 5.
    assert list(policy_of("aabcdb").victims()) == ["a", "b", "d", "c"]
    # At 8 the mean of gaps 3 and 2 is 2.5: b is expected at 10.5, and e at 8.
    assert list(policy_of("aabcdbeb").victims())[-2:] == ["b", "e"]


def test_what_is_late_by_three_gaps_goes_before_all() -> None:
    assert LATE_GAPS == 3
    assert list(policy_of("aaxyz").victims()) == ["a", "z", "y", "x"]


def test_what_waits_goes_last_and_what_waits_longest_first() -> None:
    policy = policy_of("aaxy")
    policy.hint({"a": 1, "y": 2, "z": 3})
    assert policy.is_queued("z"), "it may enter while it waits"
    policy.insert("z", 1)
    assert list(policy.victims()) == ["x", "z", "y", "a"]
    policy.hint({"y": None, "z": None, "never there": None})
    # Expected at 5 and 6, as at their last uses.
    assert list(policy.victims()) == ["z", "y", "x", "a"]


def test_waiting_hid_the_gaps_before_it() -> None:
    """Bug: under hints each gap was 1, from the end of the wait to the use that ended it."""
    policy = make_policy(PolicyName.RETURN, Future[str](()))
    for key in "abcd":
        policy.insert(key, 1)
    policy.hint({"a": 0})
    policy.hint({"a": None})
    policy.touch(["a"])
    # Used at 5, after a gap of 4. It would be late at 8 if that were 1.
    for key in "efgh":
        policy.insert(key, 1)
    assert list(policy.victims()) == ["b", "c", "d", "h", "g", "f", "e", "a"]
