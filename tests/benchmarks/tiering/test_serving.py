from collections import defaultdict

import pytest

from benchmarks.tiering import paper
from benchmarks.tiering.conversations import Conversation, generate
from benchmarks.tiering.serving import Kind, serve, warm_up

CONVERSATIONS = generate(5, count=300, sessions_per_s=1.0)


def test_turns_wait_run_and_end_in_order() -> None:
    served = serve(CONVERSATIONS, turns_per_s=2.0, think_s=50, seed=1)
    order = defaultdict(list)
    running = waiting = 0
    for event in served.events:
        order[event.conversation].append((event.turn, event.kind))
        waiting += {Kind.ENTER: 1, Kind.START: -1, Kind.END: 0}[event.kind]
        running += {Kind.ENTER: 0, Kind.START: 1, Kind.END: -1}[event.kind]
        assert 0 <= running <= paper.BATCH
    for number, conversation in enumerate(CONVERSATIONS):
        turns = range(len(conversation.turns))
        assert order[number] == [(turn, kind) for turn in turns for kind in Kind]
    times_s = [event.time_s for event in served.events]
    assert times_s == sorted(times_s)
    assert served.events == serve(CONVERSATIONS, turns_per_s=2.0, think_s=50, seed=1).events


def test_who_waits_first_starts_first() -> None:
    served = serve(CONVERSATIONS, turns_per_s=2.0, think_s=50, seed=1)
    lines = [
        [(e.conversation, e.turn) for e in served.events if e.kind is kind]
        for kind in (Kind.ENTER, Kind.START)
    ]
    assert lines[0] == lines[1]


def test_a_busy_server_ends_its_turns_at_its_rate() -> None:
    at_once = [Conversation(arrival_s=0.0, turns=(100,)) for _ in range(1200)]
    served = serve(at_once, turns_per_s=4.0, think_s=1, seed=1)
    assert served.events[-1].time_s == pytest.approx(300)
    assert served.queue_mean == pytest.approx((1200 - warm_up(1200)) / 2, rel=0.1)
