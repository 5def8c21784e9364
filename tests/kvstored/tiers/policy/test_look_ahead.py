import pytest

from kvstored.tiers.policy.fifo import FifoPolicy
from kvstored.tiers.policy.look_ahead import LookAheadPolicy
from kvstored.tiers.policy.lru import LruPolicy
from tests.kvstored.tiers.policy.eviction_conformance import (
    EvictionConformance,
    PlainTier,
    WholeSequencesConformance,
)


@pytest.fixture
def policy() -> LookAheadPolicy[str]:
    result: LookAheadPolicy[str] = LookAheadPolicy(LruPolicy())
    for key in "abcde":
        result.insert(key, 1)
    return result


class TestWithoutHints(WholeSequencesConformance):
    """It is the base then."""

    @pytest.fixture
    def tier(self) -> PlainTier:
        return PlainTier(LookAheadPolicy(LruPolicy()))


class TestOverFifo(EvictionConformance):
    @pytest.fixture
    def tier(self) -> PlainTier:
        return PlainTier(LookAheadPolicy(FifoPolicy()))


def test_queued_keys_stay_and_the_tail_goes_first_of_them(policy: LookAheadPolicy[str]) -> None:
    policy.hint({"a": 10, "b": 30, "c": 20})
    assert list(policy.victims()) == ["d", "e", "b", "c", "a"]


def test_the_papers_figure_9() -> None:
    """Everything is queued: the job that came last goes first."""
    policy: LookAheadPolicy[int] = LookAheadPolicy(LruPolicy())
    for job in (4, 2, 9, 5, 7):
        policy.insert(job, 1)
        policy.hint({job: job})
    assert list(policy.victims()) == [9, 7, 5, 4, 2]


def test_a_use_of_a_queued_key_does_not_move_it(policy: LookAheadPolicy[str]) -> None:
    policy.hint({"a": 1, "b": 2})
    policy.touch(["b", "c"])
    assert list(policy.victims()) == ["d", "e", "c", "b", "a"]


def test_what_waits_no_longer_was_used(policy: LookAheadPolicy[str]) -> None:
    policy.hint({"a": 1, "b": 2})
    policy.hint({"a": None, "c": None})
    assert list(policy.victims()) == ["c", "d", "e", "a", "b"]


def test_a_place_may_change(policy: LookAheadPolicy[str]) -> None:
    policy.hint({"a": 1, "b": 2})
    policy.hint({"a": 3})
    assert list(policy.victims()) == ["c", "d", "e", "a", "b"]


def test_a_key_is_queued_before_it_enters_and_after_it_left(policy: LookAheadPolicy[str]) -> None:
    policy.hint({"f": 1, "a": 2})
    policy.insert("f", 1)
    policy.remove("a")
    policy.insert("a", 2)
    assert list(policy.victims()) == ["b", "c", "d", "e", "a", "f"]
    assert list(policy.victims(2)) == ["a"]
    policy.remove("a")
    policy.hint({"a": None})
    policy.insert("a", 1)
    assert list(policy.victims()) == ["b", "c", "d", "e", "a", "f"]
