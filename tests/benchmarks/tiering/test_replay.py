"""One turn after the other, by hand."""

from dataclasses import replace

import pytest

from benchmarks.tiering import paper, serving
from benchmarks.tiering.contexts import Context
from benchmarks.tiering.fetching import Fetching
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


SLOW = replace(SETTING, policy=PolicyName.OURS, disk_bytes=100, disk_bytes_per_s=0.1)
"""A conversation of 9 tokens comes from the disks in 90 s, longer than between two turns."""
NINE = (Context(9, False), Context(9, True, 4))
LATE = turns((0, 0), (1, 0), (0, 1))
"""The second conversation takes the first one's place in DRAM."""


def under_way() -> Served:
    """The same, but the last turn waits for a minute, in which its fetch does not end."""
    events = list(LATE.events)
    last_s = events[-1].time_s + MINUTE_S
    events[-2:] = [event._replace(time_s=last_s) for event in events[-2:]]
    return replace(LATE, events=events)


def test_what_is_read_is_counted_as_often_as_it_is_read() -> None:
    hits = replay_events(under_way(), [NINE] * 2, SLOW)
    assert (hits.in_dram, hits.on_disk) == (0, 1)
    assert (hits.needed_bytes, hits.read_bytes) == (9, 18)


def test_a_turn_joins_the_fetch_of_its_states() -> None:
    setting = replace(SLOW, fetching=Fetching(is_joined=True))
    hits = replay_events(under_way(), [NINE] * 2, setting)
    assert (hits.on_disk, hits.read_bytes) == (1, 9)


def test_what_an_overflow_drops_is_not_read() -> None:
    hits = replay_events(under_way(), [NINE] * 2, replace(SLOW, fetching=Fetching(is_cut=True)))
    # Done after 40 s.
    assert (hits.in_dram, hits.needed_bytes, hits.read_bytes) == (1, 9, 4)


def test_what_is_not_even_fetched_is_computed() -> None:
    lru = replace(SLOW, policy=PolicyName.LRU)
    assert replay_events(LATE, [NINE] * 2, lru).on_disk == 1
    computed = Fetching(is_computed=True)
    none = replay_events(LATE, [NINE] * 2, replace(lru, fetching=computed))
    assert (none.in_dram, none.on_disk, none.read_bytes) == (0, 0, 0)
    joined = replay_events(under_way(), [NINE] * 2, replace(SLOW, fetching=computed))
    assert joined.on_disk == 1


@pytest.mark.parametrize(("bytes_per_s", "in_dram"), [(2.0, 1), (0.1, 0)])
def test_who_types_finds_states_in_dram(bytes_per_s: float, in_dram: int) -> None:
    """Nine bytes come in 4.5 s or in 90 s; the user types for 30 s."""
    setting = replace(SLOW, disk_bytes_per_s=bytes_per_s)
    assert replay_events(LATE, [NINE] * 2, setting).in_dram == 0
    typed = replace(setting, fetching=Fetching(typing_s=30.0))
    assert replay_events(LATE, [NINE] * 2, typed).in_dram == in_dram


def test_what_the_window_will_drop_is_not_known_while_the_user_types() -> None:
    """The one byte that is left after the cut would come in time, and all nine do not."""
    setting = replace(SLOW, disk_bytes_per_s=0.1, fetching=Fetching(typing_s=30.0, is_cut=True))
    contexts = [[Context(9, False), Context(9, True, 1)]] * 2
    assert replay_events(LATE, contexts, setting).in_dram == 0


def test_nothing_is_fetched_for_who_types_while_others_wait() -> None:
    typed = replace(
        SLOW, policy=PolicyName.LRU, disk_bytes_per_s=2.0, fetching=Fetching(typing_s=30.0)
    )
    assert replay_events(LATE, [NINE] * 2, typed).in_dram == 1
    events = list(LATE.events)
    third = [Event(2 * MINUTE_S, kind, 2, 0) for kind in (Kind.START, Kind.END)]
    events[6:6] = [Event(MINUTE_S + 1, Kind.ENTER, 2, 0), *third]
    hits = replay_events(replace(LATE, events=events), [NINE] * 3, typed)
    assert (hits.in_dram, hits.on_disk) == (0, 1)


def test_a_user_who_types_at_once_finds_what_the_reply_left() -> None:
    """The second turn's states leave DRAM while it runs; its end, as the third is typed, puts them.

    Nine bytes come in two seconds, so a fetch at that moment would be too late.
    """
    events = [
        *(Event(0.0, kind, 0, 0) for kind in Kind),
        *(Event(60.0, kind, 1, 0) for kind in (Kind.ENTER, Kind.START)),
        *(Event(120.0, kind, 0, 1) for kind in (Kind.ENTER, Kind.START)),
        Event(130.0, Kind.END, 1, 0),
        Event(140.0, Kind.END, 0, 1),
        *(Event(141.0, kind, 0, 2) for kind in Kind),
    ]
    typed = replace(
        SLOW, policy=PolicyName.LRU, disk_bytes_per_s=4.5, fetching=Fetching(typing_s=30.0)
    )
    contexts = [(*NINE, Context(9, False))] * 2
    hits = replay_events(Served(events=events, queue_lengths=[0] * 4), contexts, typed)
    assert (hits.in_dram, hits.on_disk) == (2, 0)
