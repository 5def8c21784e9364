"""The queues of all engines as one, told to the tiers."""

import heapq
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kvstored.format.identity import ChunkId
from kvstored.tiers.hints.queue_change import QueueAnswer
from kvstored.tiers.hints.session_queue import SessionQueue
from kvstored.tiers.policy.merged_places import MergedPlaces
from kvstored.tiers.policy.pauses import Pauses
from kvstored.tiers.policy.prefetch_plan import WaitingSequence
from kvstored.tiers.policy.queue_head import QueuedSequence, QueueHead
from kvstored.turnstile import TURNSTILE

Places = Mapping[ChunkId, int | None]


class WaitingName(NamedTuple):
    """Who waits: a name of a session."""

    session_id: int
    name: str


@dataclass(frozen=True, slots=True)
class HintedTier:
    """A tier that hints reach: what of it those of a namespace may protect, and who hears of it."""

    protected_bytes: Callable[[bytes], int]
    hint: Callable[[Places], None]


@dataclass(frozen=True, slots=True)
class _Waiting:
    """What was said of a name, without its place."""

    namespace_id: bytes
    sequence: WaitingSequence[ChunkId]


class WaitingQueue:
    """Merges the queues of engines by position, and tells each tier whose chunks wait, and where.

    A tier hears of the head of each namespace's queue only, as far as that fits what the
    namespace may protect there. Thread-safe; the tiers hear of places with the lock held, so that
    they hear of changes in their order. Only threads may call: a large change lets the event loop
    pass again and again, and keeps the lock meanwhile.
    """

    def __init__(self, tiers: tuple[HintedTier, ...]) -> None:
        self._tiers = tiers
        self._lock = threading.Lock()
        self._pauses = Pauses(TURNSTILE.give_way)
        self._sessions: dict[int, SessionQueue] = {}
        self._merged: MergedPlaces[int, str] = MergedPlaces()
        self._waiting: dict[WaitingName, _Waiting] = {}
        self._heads: list[dict[bytes, QueueHead[WaitingName, ChunkId]]] = [{} for _ in tiers]
        """By tier and namespace."""

    def __len__(self) -> int:
        """Requests that wait, of all sessions."""
        return len(self._waiting)

    def version(self, session_id: int) -> int:
        """Of a session's queue."""
        with self._lock:
            session = self._sessions.get(session_id)
            return 0 if session is None else session.version

    def change(
        self,
        session_id: int,
        namespace_id: bytes,
        *,
        versions: tuple[int, int],
        entered: Mapping[str, tuple[int, WaitingSequence[ChunkId]]],
        left: Iterable[str],
    ) -> QueueAnswer:
        """Carries out a change to the first of ``versions`` from the other one, or refuses it.

        ``entered`` has the place and the chunks of each name.
        """
        version, previous_version = versions
        with self._lock:
            session = self._sessions.setdefault(session_id, SessionQueue())
            if not session.takes(version, previous_version):
                return QueueAnswer(is_taken=False, version=session.version)
            session.version = version
            gone = session.names if previous_version == 0 else (*left, *entered)
            gone = tuple(session.leave(gone))
            counts = {name: len(sequence.chunks) for name, (_, sequence) in entered.items()}
            kept = session.enter(counts)
            for name in kept:
                self._waiting[WaitingName(session_id, name)] = _Waiting(
                    namespace_id, entered[name][1]
                )
            self._merge(session_id, {name: entered[name][0] for name in kept}, gone)
            ignored = tuple(name for name in entered if name not in set(kept))
            return QueueAnswer(is_taken=True, version=version, ignored=ignored)

    def end_session(self, session_id: int) -> None:
        """Forgets a session's queue."""
        with self._lock:
            session = self._sessions.pop(session_id, None)
            if session is not None:
                self._merge(session_id, {}, session.names)

    def head(self, tier: int) -> list[QueuedSequence[WaitingName, ChunkId]]:
        """The sequences that count for a tier, by its number; the first to run first."""
        with self._lock:
            heads = [head.sequences() for head in self._heads[tier].values()]
        return list(heapq.merge(*heads, key=lambda queued: queued.place))

    def _merge(self, session_id: int, entered: Mapping[str, int], left: Iterable[str]) -> None:
        """Takes names out that do not enter again, and puts all others to their places."""
        gone: dict[bytes, list[WaitingName]] = {}
        for name in left:
            waiting_name = WaitingName(session_id, name)
            if name not in entered and (waiting := self._waiting.pop(waiting_name, None)):
                gone.setdefault(waiting.namespace_id, []).append(waiting_name)
        moved: dict[bytes, list[QueuedSequence[WaitingName, ChunkId]]] = {}
        for one, place in self._merged.change(session_id, entered, left).items():
            waiting_name = WaitingName(*one)
            waiting = self._waiting[waiting_name]
            queued = QueuedSequence(waiting_name, place, waiting.sequence)
            moved.setdefault(waiting.namespace_id, []).append(queued)
        for namespace_id in {**gone, **moved}:
            self._tell(namespace_id, moved.get(namespace_id, ()), gone.get(namespace_id, ()))

    def _tell(
        self,
        namespace_id: bytes,
        moved: Iterable[QueuedSequence[WaitingName, ChunkId]],
        gone: Iterable[WaitingName],
    ) -> None:
        for tier, heads in zip(self._tiers, self._heads, strict=True):
            # A quota may have changed since the last change of the queue.
            protected_bytes = tier.protected_bytes(namespace_id)
            if namespace_id not in heads:
                heads[namespace_id] = QueueHead(protected_bytes, self._pauses)
            places = heads[namespace_id].resize(protected_bytes)
            places.update(heads[namespace_id].change(moved, gone))
            if not len(heads[namespace_id]):
                del heads[namespace_id]
            if places:
                tier.hint(places)
