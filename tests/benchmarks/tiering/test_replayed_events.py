"""The daemon's own events, replayed through the policies that the simulation uses."""

import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.tiering.future import Future
from benchmarks.tiering.policies import PolicyName, make_policy
from kvstored.format.identity import ChunkId
from kvstored.tiers.chunks import accounts
from kvstored.tiers.policy.protocol import EvictionPolicy
from tests.kvstored.tiers.hints.test_hints import hint
from tests.support.stores import (
    BASE,
    LAYOUT,
    MIB,
    StoreUnderTest,
    new_board,
    open_store,
)
from tests.support.waiting import wait_until


@dataclass(frozen=True, slots=True)
class Event:
    """A call of a policy; of ``victims`` with as many as the tier looked at."""

    verb: str
    argument: object
    group: int | None = None
    found: tuple[ChunkId, ...] = ()


class RecordingPolicy:
    """Notes the calls of a tier, which its lock serialises, and passes them on."""

    def __init__(self, inner: EvictionPolicy[ChunkId]) -> None:
        self._inner = inner
        self._events: list[Event | None] = []

    @property
    def events(self) -> list[Event]:
        return [event for event in self._events if event is not None]

    def insert(self, key: ChunkId, group: int) -> None:
        self._events.append(Event("insert", key, group))
        self._inner.insert(key, group)

    def touch(self, keys: Sequence[ChunkId], *, together: bool = False) -> None:
        self._events.append(Event("together" if together else "touch", tuple(keys)))
        self._inner.touch(keys, together=together)

    def remove(self, key: ChunkId) -> None:
        self._events.append(Event("remove", key))
        self._inner.remove(key)

    def hint(self, places: Mapping[ChunkId, int | None]) -> None:
        self._events.append(Event("hint", dict(places)))
        self._inner.hint(places)

    def is_queued(self, key: ChunkId) -> bool:
        return self._inner.is_queued(key)

    def victims(self, group: int | None = None) -> Iterator[ChunkId]:
        place = len(self._events)
        self._events.append(None)
        found: list[ChunkId] = []
        for key in self._inner.victims(group):
            found.append(key)
            self._events[place] = Event("victims", None, group, tuple(found))
            yield key


def replayed(events: list[Event], policy: EvictionPolicy[ChunkId]) -> int:
    """Asks ``policy`` the same; every victim must be the one that the daemon named."""
    compared = 0
    for event in events:
        match event.verb:
            case "victims":
                victims = policy.victims(event.group)
                for expected in event.found:
                    assert next(victims) == expected
                compared += len(event.found)
            case "insert":
                assert event.group is not None
                policy.insert(event.argument, event.group)  # type: ignore[arg-type]
            case "together":
                policy.touch(event.argument, together=True)  # type: ignore[arg-type]
            case verb:
                getattr(policy, verb)(event.argument)
    return compared


def load(opened: StoreUnderTest, seed: int) -> None:
    """Puts, reads and hints of three clients at once."""
    lock = threading.Lock()

    def client(number: int) -> None:
        dice = random.Random(seed * 10 + number)
        version = 0
        for _ in range(40):
            first = dice.randrange(150)
            numbers = list(range(first, first + 6))
            match dice.choice(["put", "put", "read", "read", "hint"]):
                case "put":
                    with lock:
                        tickets = opened.put(numbers)
                    for ticket in tickets:
                        if ticket.durable is not None:
                            ticket.durable.result()
                case "read":
                    board = new_board(len(numbers))
                    assert opened.read(numbers, base=BASE + number * MIB, board=board).wait(30)
                case _:
                    version += 1
                    entries = {
                        f"{one}": list(range(start, start + 4))
                        for one, start in enumerate(dice.sample(range(150), 3))
                    }
                    hint(opened, entries, versions=(version, 0))

    threads = [threading.Thread(target=client, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[RecordingPolicy]]:
    """Puts a recorder around what one of the functions makes that make policies."""

    def around(function: str) -> list[RecordingPolicy]:
        made: list[RecordingPolicy] = []
        make = getattr(accounts, function)

        def recording(*arguments: object) -> RecordingPolicy:
            made.append(RecordingPolicy(make(*arguments)))
            return made[-1]

        monkeypatch.setattr(accounts, function, recording)
        return made

    return around


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("function", "name"),
    [
        ("make_retention", PolicyName.OURS),
        ("make_table_retention", PolicyName.LOOK_AHEAD),
    ],
)
def test_the_simulation_finds_the_same_victims(
    in_memory: Path,
    record: Callable[[str], list[RecordingPolicy]],
    function: str,
    name: PolicyName,
    seed: int,
) -> None:
    policies = record(function)
    with open_store(in_memory, device_count=1, slabs_per_device=3) as opened:
        opened.store.layouts.register(LAYOUT)
        wait_until(lambda: opened.store._store.index.layout(LAYOUT.layout_id) is not None)
        load(opened, seed)
    (policy,) = policies
    verbs = {event.verb for event in policy.events}
    assert verbs == {"insert", "touch", "together", "remove", "hint", "victims"}
    assert replayed(policy.events, make_policy(name, Future[ChunkId](()))) > 50


def test_a_policy_that_decides_otherwise_is_seen(
    in_memory: Path, record: Callable[[str], list[RecordingPolicy]]
) -> None:
    policies = record("make_retention")
    with open_store(in_memory, device_count=1, slabs_per_device=3) as opened:
        load(opened, 0)
    other: EvictionPolicy[ChunkId] = make_policy(PolicyName.FIFO, Future[ChunkId](()))
    with pytest.raises(AssertionError):
        replayed(policies[0].events, other)
