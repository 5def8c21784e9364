"""The part of the load that talks: turns of conversations arrive at random, and wait in a queue.

Arrivals are those of a Poisson process. What arrives waits until a step takes it, and the daemon
hears of the queue as an engine tells it.
"""

import random
import time
from collections.abc import Callable, Sequence

from engine_adapters.conversation.conversations import Conversation, Conversations
from engine_adapters.conversation.errors import ConversationError
from engine_adapters.conversation.history import dropped
from engine_adapters.hints.queue_changes import QueueChanges
from kvstored_client import AppendItem, Client, Placement, QueueEntry, StateLayout
from kvstored_contract.keys import history_keys
from kvstored_contract.snapshot import SnapshotGeometry

ARRIVALS_PER_S = 4.0
TALKS = 4
"""Conversations of one load: no other one knows them."""
TURN_TOKENS = 150
TOKENS_MAX = 900
"""A conversation as long as this begins once more."""
TOKEN_IDS = 32_000
CUT_SHARE = 0.3
FORK_SHARE = 0.2
LEASE_MS = 2_000


class TalkingLoad:
    """Turns of some conversations over all sessions of a load, which has one at a time.

    ``payload`` is at least as long as a snapshot that an arena has room for. Not thread-safe;
    ``turn_count`` counts finished turns.
    """

    def __init__(
        self,
        layout: StateLayout,
        *,
        source: random.Random,
        payload: bytes,
        name: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.turn_count = 0
        self._layout = layout
        self._source = source
        self._payload = payload
        self._names = [f"{name} {number}" for number in range(TALKS)]
        self._clock = clock
        self._next_s = clock()
        self._place = 0
        self._waiting: dict[str, int] = {}
        self._client: Client | None = None
        self._changes = QueueChanges()

    def step(self, client: Client) -> None:
        """Takes note of who has come, tells the daemon, and takes the first turn that waits."""
        if client is not self._client:
            # A queue ends with its session.
            self._client, self._changes = client, QueueChanges()
            for name, place in self._waiting.items():
                self._changes.enter(QueueEntry(name=name, place=place))
        self._arrive()
        self._tell(client)
        if not self._waiting:
            return
        name = min(self._waiting, key=self._waiting.__getitem__)
        del self._waiting[name]
        self._changes.leave(name)
        self._tell(client)
        self._take(Conversations(client, self._layout.model), client, name)

    def _arrive(self) -> None:
        """A conversation whose turn waits has no other one meanwhile."""
        now_s = self._clock()
        while self._next_s <= now_s:
            self._next_s += self._source.expovariate(ARRIVALS_PER_S)
            name = self._source.choice(self._names)
            if name not in self._waiting:
                self._place += 1
                self._waiting[name] = self._place
                self._changes.enter(QueueEntry(name=name, place=self._place))

    def _tell(self, client: Client) -> None:
        update = self._changes.take()
        if update is not None:
            report = client.sequences.hint(
                update.entered,
                update.left,
                version=update.version,
                previous_version=update.previous_version,
            )
            self._changes.end(update, report)

    def _take(self, talks: Conversations, client: Client, name: str) -> None:
        """One turn; a conversation whose token ids were evicted begins once more."""
        try:
            talk = talks.open(name)
            if len(talk.token_ids) > TOKENS_MAX:
                talks.delete(name)
                return
            talk = self._cut(talks, talk)
            self._read(talks, client, talk)
            count = self._source.randint(1, TURN_TOKENS)
            new_ids = [self._source.randrange(TOKEN_IDS) for _ in range(count)]
            self._save(client, talk, [*talk.token_ids, *new_ids])
            talks.end_turn(talk, new_ids)
            if self._source.random() < FORK_SHARE:
                talks.fork(name, f"{name} fork")
                talks.delete(f"{name} fork")
        except ConversationError:
            talks.delete(name)
        else:
            self.turn_count += 1

    def _cut(self, talks: Conversations, talk: Conversation) -> Conversation:
        count = talk.computed_tokens - dropped(talk.cuts)
        if count < TURN_TOKENS or self._source.random() > CUT_SHARE:
            return talk
        first, stop = sorted(self._source.sample(range(1, count), 2))
        return talks.truncate(talk, (range(first), range(stop, count)))

    def _read(self, talks: Conversations, client: Client, talk: Conversation) -> None:
        """Reads what is stored of the window, each chunk once."""
        stored = talks.stored(talk, self._layout, lease_ms=LEASE_MS)
        keys = list(dict.fromkeys(stored.keys[piece.chunk] for piece in stored.usable.pieces))
        region = (
            client.allocate(Placement.contiguous_bytes(self._layout, len(keys))) if keys else None
        )
        if region is not None:
            with region:
                place = Placement.contiguous(region, self._layout)
                with client.read(self._layout, keys, place) as read:
                    read.wait()
        if stored.lease is not None and self._source.random() < 0.5:
            stored.lease.release()

    def _save(self, client: Client, talk: Conversation, token_ids: Sequence[int]) -> None:
        """States of all tokens but the last, which was only sampled, behind those that are kept."""
        stop, chunk_tokens = len(token_ids) - 1, self._layout.chunk_tokens
        info = client.sequences.get(talk.name)
        if info is None:
            info = client.sequences.create(talk.name, self._layout)
        if info is None or not info.staged_tokens < stop:
            return
        first = info.staged_tokens
        keys = history_keys(
            namespace=client.namespace,
            layout=self._layout,
            token_ids=token_ids[:stop],
            cuts=talk.cuts,
        )
        region = client.allocate(SnapshotGeometry(self._layout, stop - first).byte_count)
        if region is None:
            return
        with region:
            region.view[:] = self._payload[: region.byte_count]
            item = AppendItem(
                sequence=talk.name,
                first_token=first,
                first_row=0,
                token_count=stop - first,
                keys=keys[first // chunk_tokens : stop // chunk_tokens],
            )
            client.append(self._layout, region, stop - first, [item])
        tail_key = keys[-1] if stop % chunk_tokens else b""
        client.sequences.flush(talk.name, tail_key, expected_tokens=stop)
