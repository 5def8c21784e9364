"""Follows chunks that a tier has put into the store, so that vLLM can tell routers of them.

One thread asks the daemon now and then. Nothing stays told that is gone, for the reason that
``change_follower.py`` gives: vLLM hears of a chunk when the daemon says at a place of its changes
that it is stored, and whatever goes later is heard after that place.
"""

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from engine_adapters.vllm.events.change_follower import INTERVAL_S, KEYS_PER_QUESTION_MAX, SILENCE_S
from engine_adapters.vllm.messages.chunk_events import CHUNKS_MAX
from kvstored_client import ChangeKind, Changes, Client

LOGGER = logging.getLogger("vllm.kvstored")


@dataclass(frozen=True, slots=True)
class TierChange:
    """Chunks, by vLLM's keys, that the store has from now on, or has not any more."""

    offload_keys: tuple[bytes, ...]
    is_removed: bool


class TierFollower:
    """Tells of the chunks that were put, from when the store has them until it has not.

    ``key_of`` gives the store's key of one of vLLM's. ``stored``, ``take`` and ``close`` may be
    called from any thread and never wait for the daemon. It announces at
    most ``chunks_max`` chunks at a time, and takes back the oldest. Nothing is raised: with a
    fault, and while the daemon is silent, it takes back everything, and announces again what it
    knows to be there.
    """

    def __init__(
        self,
        client: Client,
        key_of: Callable[[bytes], bytes],
        *,
        interval_s: float = INTERVAL_S,
        chunks_max: int = CHUNKS_MAX,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._key_of = key_of
        self._interval_s = interval_s
        self._chunks_max = chunks_max
        self._clock = clock
        self._untold: deque[bytes] = deque(maxlen=chunks_max)
        """vLLM's keys of chunks that may be stored."""
        self._told: OrderedDict[bytes, bytes] = OrderedDict()
        """vLLM's keys by the store's."""
        self._doubted: deque[bytes] = deque()
        """Keys of the store that it announced and that may be gone."""
        self._ready: deque[TierChange] = deque()
        self._place = (0, 0)
        self._heard_s = clock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kvstored-tier-follow", daemon=True)

    def start(self) -> None:
        """Begins to ask."""
        self._thread.start()

    def stored(self, offload_keys: Collection[bytes]) -> None:
        """These chunks were put."""
        self._untold.extend(offload_keys)

    def take(self) -> Sequence[TierChange]:
        """What has changed since the last call, in order."""
        return [self._ready.popleft() for _ in range(len(self._ready))]

    def close(self) -> None:
        """Asks nothing any more; returns at once."""
        self._end.set()

    def poll(self) -> bool:
        """Asks once; whether there is more to ask for at once. On the follower's thread only."""
        asked = self._question()
        epoch, after_sequence = self._place
        try:
            answer = self._client.changes(
                epoch=epoch, after_sequence=after_sequence, keys=tuple(asked)
            )
            if answer is not None:
                self._hear(answer, asked)
        except BaseException:
            self._untold.extendleft(reversed(asked.values()))
            raise
        if answer is None:
            self._untold.extendleft(reversed(asked.values()))
            if self._clock() - self._heard_s >= SILENCE_S:
                self._start_over()
            return False
        return answer.has_more or bool(self._untold or self._doubted)

    def _run(self) -> None:
        level = logging.ERROR
        while not self._end.is_set():
            has_more = False
            try:
                has_more = self.poll()
            except Exception:
                # Said once: what is wrong with one answer is wrong with the next.
                LOGGER.log(level, "kvstored: events of the tier start over", exc_info=True)
                level = logging.DEBUG
                self._start_over()
            if not has_more:
                self._end.wait(self._interval_s)

    def _question(self) -> dict[bytes, bytes]:
        """What to ask for: vLLM's keys by the store's."""
        asked: dict[bytes, bytes] = {}
        while self._doubted and len(asked) < KEYS_PER_QUESTION_MAX:
            key = self._doubted.popleft()
            if key in self._told:
                asked[key] = self._told[key]
        while self._untold and len(asked) < KEYS_PER_QUESTION_MAX:
            offload_key = self._untold.popleft()
            asked[self._key_of(offload_key)] = offload_key
        return asked

    def _hear(self, answer: Changes, asked: dict[bytes, bytes]) -> None:
        self._heard_s = self._clock()
        self._place = answer.epoch, answer.last_sequence
        if answer.is_lost:
            self._doubted = deque(self._told)
        self._tell_removed(
            [change.key for change in answer.changes if change.kind is ChangeKind.REMOVED]
        )
        are_stored = dict(zip(asked, answer.are_stored, strict=True))
        self._tell_removed([key for key, is_stored in are_stored.items() if not is_stored])
        self._tell_stored({key: asked[key] for key, is_stored in are_stored.items() if is_stored})

    def _tell_removed(self, keys: Collection[bytes]) -> None:
        gone = tuple(self._told.pop(key) for key in keys if key in self._told)
        if gone:
            self._ready.append(TierChange(gone, is_removed=True))

    def _tell_stored(self, offload_keys: dict[bytes, bytes]) -> None:
        news = {key: own for key, own in offload_keys.items() if key not in self._told}
        if news:
            self._told |= news
            self._ready.append(TierChange(tuple(news.values()), is_removed=False))
        self._tell_removed(list(self._told)[: max(0, len(self._told) - self._chunks_max)])

    def _start_over(self) -> None:
        self._untold.extend(self._told.values())
        self._tell_removed(list(self._told))
        self._doubted.clear()
        self._place = (0, 0)
