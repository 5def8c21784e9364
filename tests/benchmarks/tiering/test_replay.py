"""One turn after the other, by hand."""

from dataclasses import replace

import pytest

from benchmarks.tiering import paper, serving
from benchmarks.tiering.contexts import Context
from benchmarks.tiering.policies import PolicyName
from benchmarks.tiering.replay import Setting
from benchmarks.tiering.replay import replay as replay_events
from benchmarks.tiering.serving import Event, Kind, Served

MODEL = replace(paper.LLAMA_13B, token_bytes=1, window_tokens=10)
SETTING = Setting(
    policy=PolicyName.LRU,
    disk_bytes=20,
    dram_bytes=10,
    model=MODEL,
    disk_bytes_per_s=10.0,
    is_reserved=False,
)
ONE = (Context(10, False), Context(10, True), Context(10, False))
MINUTE_S = 60.0


@pytest.fixture(autouse=True)
def no_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.tiering.replay.warm_up", lambda count: 0)


def turns(*numbers: tuple[int, int]) -> Served:
    """Turns, each by its conversation and number, a minute after the other."""
    events = [
        Event(MINUTE_S * position, kind, conversation, turn)
        for position, (conversation, turn) in enumerate(numbers)
        for kind in Kind
    ]
    return Served(events=events, queue_lengths=[0] * len(numbers))


def waiting(*numbers: tuple[int, int], then: tuple[tuple[int, int], ...]) -> Served:
    """The same, and then turns that all wait for an hour before the first starts."""
    before = list(turns(*numbers).events)
    start_s = MINUTE_S * len(numbers)
    entered = [Event(start_s, Kind.ENTER, *one) for one in then]
    served = [
        Event(start_s + 60 * MINUTE_S * (1 + position), kind, *one)
        for position, one in enumerate(then)
        for kind in (Kind.START, Kind.END)
    ]
    return Served(events=before + entered + served, queue_lengths=[0] * 9)


def test_what_is_kept_may_have_a_policy_of_its_own() -> None:
    """The first conversation is used again, so that LRU keeps it, and FIFO does not."""
    served = turns((0, 0), (1, 0), (2, 0), (0, 1), (3, 0), (0, 2))
    found = [
        replay_events(served, [ONE] * 4, replace(SETTING, kept_policy=policy))
        for policy in (None, PolicyName.LRU, PolicyName.FIFO)
    ]
    assert [each.in_dram + each.on_disk for each in found] == [2, 2, 1]


def test_a_history_is_found_until_others_displace_it() -> None:
    again = replay_events(turns((0, 0), (0, 1)), [ONE], SETTING)
    assert (again.turns, again.first_turns, again.in_dram, again.on_disk) == (2, 1, 1, 0)
    assert (again.of_all, again.of_later) == (50, 100)
    flooded = turns((0, 0), (1, 0), (2, 0), (3, 0), (0, 1))
    lost = replay_events(flooded, [ONE] * 4, SETTING)
    assert lost.of_later == 0
    room = replace(SETTING, disk_bytes=30)
    assert replay_events(flooded, [ONE] * 4, room).of_later == 100


def test_reserved_room_is_a_whole_window() -> None:
    small = [(Context(1, False),) * 2] * 4
    flooded = turns((0, 0), (1, 0), (2, 0), (3, 0), (0, 1))
    assert replay_events(flooded, small, SETTING).of_later == 100
    assert replay_events(flooded, small, replace(SETTING, is_reserved=True)).of_later == 0


def test_coupled_states_are_useless_after_a_cut() -> None:
    coupled = replace(SETTING, is_coupled=True)
    hits = replay_events(turns((0, 0), (0, 1), (0, 2)), [ONE], coupled)
    assert (hits.in_dram, hits.on_disk) == (1, 0)
    assert replay_events(turns((0, 0), (0, 1), (0, 2)), [ONE], SETTING).in_dram == 2


def test_states_expire() -> None:
    served = turns((0, 0), (1, 0), (0, 1))
    assert replay_events(served, [ONE] * 2, replace(SETTING, ttl_s=100)).of_later == 0
    assert replay_events(served, [ONE] * 2, replace(SETTING, ttl_s=130)).of_later == 100


def test_those_who_wait_keep_their_states_and_find_them_in_dram() -> None:
    """Four conversations, room for three; LRU gives up the one that waits first."""
    served = waiting((0, 0), (1, 0), (2, 0), then=((0, 1), (3, 0), (1, 1)))
    contexts = [(Context(9, False), Context(9, False))] * 4
    lru = replay_events(served, contexts, replace(SETTING, disk_bytes=8, dram_bytes=10))
    assert (lru.in_dram, lru.on_disk) == (0, 0)
    for policy in (PolicyName.LOOK_AHEAD, PolicyName.OURS):
        setting = replace(SETTING, policy=policy, disk_bytes=8, dram_bytes=10)
        hinted = replay_events(served, contexts, setting)
        assert (hinted.in_dram, hinted.on_disk) == (1, 0)


def test_the_warm_up_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.tiering.replay.warm_up", lambda count: 1)
    hits = replay_events(turns((0, 0), (0, 1)), [ONE], SETTING)
    assert (hits.turns, hits.first_turns, hits.of_all) == (1, 0, 100)
    assert serving.warm_up(52_000) == pytest.approx(10_000, rel=0.01)
