"""Follows what comes and goes in the store, and has vLLM tell routers of it.

One thread asks the daemon now and then. The scheduler's thread only leaves what its look-ups have
found and what it has saved, and takes what is ready.

Why nothing stays announced that is gone: it hears the daemon's changes in their order, from the
place of the last answer on, and what an answer says of single keys is true *at or after* that
place. So it hears later of whatever goes later.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine_adapters.vllm.identity.chunk_keys import KeyChain, RequestIdentity, rank_key
from engine_adapters.vllm.messages.chunk_events import BlockEvent, ChunkEvents
from engine_adapters.vllm.messages.chunk_note import ChunkNote, NoteWriter
from kvstored_client import ChangeKind, Changes, Client, StateLayout

LOGGER = logging.getLogger("vllm.kvstored")
INTERVAL_S = 0.2
"""How often the daemon is asked."""
SILENCE_S = 10.0
"""A daemon that has not answered for so long has nothing to offer: all announcements are taken
back."""
KEYS_PER_QUESTION_MAX = 4096
SIGHTINGS_MAX = 256
"""Requests whose found chunks wait to be announced, and orders to save since the last two
answers; the oldest is left out then."""
READY_MAX = 16_384
"""Events that wait for a step: with more of them an engine that stands still asks nothing."""
TAKEN_MAX = 1024
"""Events that one step takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """``chunk_count`` leading chunks of a request that the store has, or will have soon."""

    chain: KeyChain
    chunk_count: int
    token_ids: Sequence[int]
    block_hashes: Sequence[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedStore:
    """Whose changes are followed: a client, and the layouts of all ranks of one engine."""

    client: Client
    layouts: tuple[StateLayout, ...]
    fingerprint: str

    def rank_keys(self, chain_key: bytes) -> tuple[bytes, ...]:
        """The keys under which the ranks store a chunk."""
        return tuple(rank_key(chain_key, layout.layout_id) for layout in self.layouts)

    def plain_root(self) -> bytes:
        """The root of the keys of requests that nothing but their tokens sets apart."""
        return KeyChain(
            namespace=self.client.namespace,
            fingerprint=self.fingerprint,
            identity=RequestIdentity(),
            chunk_tokens=self.layouts[0].chunk_tokens,
        ).root


@dataclass(frozen=True, slots=True)
class _Sightings:
    """What to ask for, and what was saved since the last answer, and before that one."""

    found: deque[Sighting] = field(default_factory=lambda: deque(maxlen=SIGHTINGS_MAX))
    saved: deque[Sighting] = field(default_factory=lambda: deque(maxlen=SIGHTINGS_MAX))
    saved_before: list[Sighting] = field(default_factory=list)

    def heard(self) -> list[Sighting]:
        """Saves whose changes may be later than the last answer: a put takes its time."""
        saved = [self.saved.popleft() for _ in range(len(self.saved))]
        both = [*self.saved_before, *saved]
        self.saved_before[:] = saved
        return both


class ChangeFollower:
    """Tells of the blocks that the store of this node has for one engine.

    ``sighted``, ``saves``, ``know``, ``take``, ``retire`` and ``close`` may be called from any
    thread and never wait for the daemon; ``convert`` makes of an event what ``take`` returns.
    Nothing is raised: with a fault it takes back all announcements and starts over.
    """

    def __init__(
        self,
        store: FollowedStore,
        writer: NoteWriter,
        convert: Callable[[BlockEvent], Any],
        *,
        interval_s: float = INTERVAL_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.writer = writer
        self._store = store
        self._convert = convert
        self._interval_s = interval_s
        self._clock = clock
        self._events = ChunkEvents(store.rank_keys)
        self._sightings = _Sightings()
        self._asked: deque[tuple[bytes, ChunkNote | None]] = deque()
        self._ready: deque[Any] = deque()
        self._place = (0, 0)
        self._heard_s = clock()
        self._is_known = False
        self._is_retired = False
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kvstored-follow", daemon=True)

    def start(self) -> None:
        """Begins to ask."""
        self._thread.start()

    def know(self, root: bytes, adapter_name: str) -> None:
        """Chunks whose keys begin with ``root`` help requests of that LoRA adapter."""
        if scope := self.writer.scope_of(root):
            self._events.know(scope, adapter_name)

    def sighted(self, sighting: Sighting) -> None:
        """A look-up has found chunks, some of which may be unannounced."""
        keys = sighting.chain.extend(())[: sighting.chunk_count]
        if not all(map(self._events.is_told, keys)):
            self._sightings.found.append(sighting)

    def saves(self, sighting: Sighting) -> None:
        """Chunks are on their way: the daemon tells of those that come after the first question."""
        self._sightings.saved.append(sighting)

    def take(self) -> Sequence[Any]:
        """Events since the last call, as many as a step should take."""
        if not self._ready:
            return ()
        return [self._ready.popleft() for _ in range(min(TAKEN_MAX, len(self._ready)))]

    def retire(self) -> None:
        """What is stored does not help this engine any more: all announcements are taken back."""
        self._is_retired = True

    def close(self) -> None:
        """Asks nothing any more; returns at once."""
        self._end.set()

    def poll(self) -> bool:
        """Asks once; whether there is more to ask for at once. On the follower's thread only."""
        if self._is_retired:
            self._start_over()
            self._hand_out()
            return False
        if len(self._ready) >= READY_MAX:
            return False
        asked: list[tuple[bytes, ChunkNote | None]] = []
        if not self._knows_plain_chunks():
            answer = None
        else:
            self._look_at_sightings()
            asked = [self._asked.popleft() for _ in range(self._question_length())]
            epoch, after_sequence = self._place
            answer = self._store.client.changes(
                epoch=epoch, after_sequence=after_sequence, keys=[key for key, _ in asked]
            )
        if answer is None:
            self._asked.extendleft(reversed(asked))
            if self._clock() - self._heard_s >= SILENCE_S:
                self._start_over()
        else:
            self._hear(answer, asked)
        self._hand_out()
        return answer is not None and (
            answer.has_more or bool(self._asked or self._sightings.found)
        )

    def _run(self) -> None:
        level = logging.ERROR
        while not self._end.is_set():
            has_more = False
            try:
                has_more = self.poll()
            except Exception:
                # Said once: what is wrong with one event is wrong with the next.
                LOGGER.log(level, "kvstored: events start over", exc_info=True)
                level = logging.DEBUG
                self._start_over()
            if not has_more:
                self._end.wait(self._interval_s)

    def _knows_plain_chunks(self) -> bool:
        """Whether the daemon has named the namespace, and the engine hashes blocks."""
        if not self._is_known and self._store.client.available():
            root = self._store.plain_root()
            self._is_known = bool(self.writer.scope_of(root))
            self.know(root, "")
        return self._is_known

    def _question_length(self) -> int:
        return min(KEYS_PER_QUESTION_MAX, len(self._asked))

    def _look_at_sightings(self) -> None:
        """What look-ups have found is asked for again, so that the answer has a place."""
        while self._sightings.found and self._question_length() < KEYS_PER_QUESTION_MAX:
            sighting = self._sightings.found.popleft()
            for note in self.writer.notes(
                sighting.chain,
                range(sighting.chunk_count),
                token_ids=sighting.token_ids,
                block_hashes=sighting.block_hashes,
            ):
                if not self._events.is_told(note.chain_key):
                    self._asked += [(key, note) for key in self._store.rank_keys(note.chain_key)]

    def _hear(self, answer: Changes, asked: Sequence[tuple[bytes, ChunkNote | None]]) -> None:
        self._heard_s = self._clock()
        self._place = answer.epoch, answer.last_sequence
        saved = self._sightings.heard()
        if answer.is_lost:
            # They may have come before the daemon took note of changes for anybody.
            self._sightings.found.extend(saved)
            # Whatever it announced may be gone: each is asked for, with the next questions.
            sighted = [question for question in self._asked if question[1] is not None]
            self._asked = deque([*sighted, *((key, None) for key in self._events.keys)])
        for change in answer.changes:
            if change.kind is ChangeKind.REMOVED:
                self._events.removed(change.key)
            elif (note := ChunkNote.decode(change.note)) is not None:
                self._events.stored(change.key, note)
        for (key, note), is_stored in zip(asked, answer.are_stored, strict=True):
            if not is_stored:
                self._events.removed(key)
            elif note is not None:
                self._events.stored(key, note)

    def _start_over(self) -> None:
        self._events.withdraw()
        self._asked.clear()
        self._place = (0, 0)

    def _hand_out(self) -> None:
        self._ready.extend(map(self._convert, self._events.take()))
