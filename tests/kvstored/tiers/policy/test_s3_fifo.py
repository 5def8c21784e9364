import pytest

from kvstored.tiers.policy.s3_fifo import S3FifoPolicy
from tests.kvstored.tiers.policy.eviction_conformance import EvictionConformance, PlainTier


@pytest.fixture
def policy() -> S3FifoPolicy[int]:
    return S3FifoPolicy()


def evict(policy: S3FifoPolicy[int], group: int | None = None) -> int:
    victim = next(policy.victims(group))
    policy.remove(victim)
    return victim


class TestS3FifoPolicy(EvictionConformance):
    @pytest.fixture
    def tier(self) -> PlainTier:
        return PlainTier(S3FifoPolicy())


def test_what_was_used_twice_stays_and_what_was_used_once_goes(policy: S3FifoPolicy[int]) -> None:
    for key in range(4):
        policy.insert(key, 1)
    policy.touch([0, 0, 1])
    assert list(policy.victims()) == [1, 2, 3, 0]
    assert [evict(policy) for _ in range(4)] == [1, 2, 3, 0]


def test_a_ghost_returns_to_the_main_queue(policy: S3FifoPolicy[int]) -> None:
    for key in range(10):
        policy.insert(key, 1)
    assert evict(policy) == 0
    policy.insert(0, 1)
    policy.insert(10, 1)
    # The others entered before it and after it, and go first all the same.
    assert list(policy.victims()) == [*range(1, 11), 0]


def test_a_key_that_left_the_main_queue_is_no_ghost(policy: S3FifoPolicy[int]) -> None:
    policy.insert(0, 1)
    evict(policy)
    policy.insert(0, 1)
    evict(policy)
    for key in (0, 1):
        policy.insert(key, 1)
    assert list(policy.victims()) == [0, 1]


def test_no_more_ghosts_than_main_keys(policy: S3FifoPolicy[int]) -> None:
    for key in range(3):
        policy.insert(key, 1)
        policy.remove(key)
    # Of three ghosts the last one is left: with one key in its place it returns as a main key.
    for key in (0, 2, 3):
        policy.insert(key, 1)
    assert list(policy.victims()) == [0, 3, 2]


def test_the_main_queue_gives_up_what_was_not_used_since_it_moved(
    policy: S3FifoPolicy[int],
) -> None:
    for key in range(20):
        policy.insert(key, 1)
        policy.touch([key, key])
    # All move to the main queue; 0 is used there and gets another round.
    assert next(policy.victims()) == 0
    policy.touch([0, 0])
    policy.insert(20, 1)
    # 20 goes as soon as it is a tenth of what is left.
    assert list(policy.victims()) == [*range(1, 12), 20, *range(12, 20), 0]
    assert [evict(policy) for _ in range(2)] == [1, 2]


def test_uses_beyond_three_are_not_counted(policy: S3FifoPolicy[int]) -> None:
    for key in range(20):
        policy.insert(key, 1)
        policy.touch([key] * 2)
    assert next(policy.victims()) == 0
    policy.touch([0] * 100)
    policy.touch([1] * 3)
    assert [evict(policy) for _ in range(18)] == list(range(2, 20))
    assert evict(policy) == 0


def test_groups_have_queues_of_their_own(policy: S3FifoPolicy[int]) -> None:
    for key in range(6):
        policy.insert(key, key % 2)
    policy.touch([0, 0])
    assert list(policy.victims(0)) == [2, 4, 0]
    assert next(policy.victims()) == 1
    policy.insert(1, 0)
    assert set(policy.victims(0)) == {0, 1, 2, 4}
