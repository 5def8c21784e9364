from benchmarks.tiering.fetching import Typing, typing_of
from benchmarks.tiering.serving import Event, Kind

EVENTS = [
    Event(0.0, Kind.ENTER, 0, 0),
    Event(1.0, Kind.START, 0, 0),
    Event(10.0, Kind.END, 0, 0),
    Event(12.0, Kind.ENTER, 1, 0),
    Event(13.0, Kind.START, 1, 0),
    Event(14.0, Kind.END, 1, 0),
    Event(15.0, Kind.ENTER, 1, 1),
    Event(16.0, Kind.ENTER, 0, 1),
]


def test_users_type_before_later_turns_and_after_replies() -> None:
    assert typing_of(EVENTS, 3.0) == [
        Typing(time_s=13.0, conversation=0, turn=1),
        Typing(time_s=14.0, conversation=1, turn=1),
    ]


def test_without_a_time_nobody_says() -> None:
    assert typing_of(EVENTS, None) == []
