"""How states come from the disks before their turn starts, and when it is known who types."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from benchmarks.tiering.serving import Event, Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetching:
    """Remedies for turns that start before their states are in DRAM.

    ``is_joined``: a turn that starts while its states are fetched waits for that, instead of a
    second read. ``is_cut``: what the overflow of the window drops is not read; it is known as the
    turn begins to wait. ``is_computed``: what a turn finds neither in DRAM nor on the way there is
    computed, not read, and so is no hit. ``typing_s``: so long before a later turn arrives its
    user begins to type, and while nobody waits its states are fetched; without it nobody says.
    """

    is_joined: bool = False
    is_cut: bool = False
    is_computed: bool = False
    typing_s: float | None = None


AS_ALWAYS = Fetching()


@dataclass(frozen=True, slots=True, kw_only=True)
class Typing:
    """The user of a conversation begins to type a turn, both by their numbers from 0."""

    time_s: float
    conversation: int
    turn: int


def typing_of(events: Sequence[Event], typing_s: float | None) -> list[Typing]:
    """When users begin to type later turns, in order: never before the reply has ended."""
    if typing_s is None:
        return []
    ended_s: dict[int, float] = {}
    found: list[Typing] = []
    for event in events:
        if event.kind is Kind.END:
            ended_s[event.conversation] = event.time_s
        elif event.kind is Kind.ENTER and event.turn:
            begun_s = max(event.time_s - typing_s, ended_s[event.conversation])
            found.append(Typing(time_s=begun_s, conversation=event.conversation, turn=event.turn))
    return sorted(found, key=attrgetter("time_s"))
