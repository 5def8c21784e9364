"""Sequences of 32-bit words in a layout of one layer, such as what a conversation says."""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from engine_adapters.conversation.errors import (
    ConversationError,
    LostWordsError,
    OtherModelError,
)
from kvstored_client import (
    Ack,
    AppendItem,
    Client,
    LayerState,
    Lease,
    NewChunk,
    Placement,
    Rotary,
    SequenceInfo,
    SnapshotGeometry,
    StateKind,
    StateLayout,
)
from kvstored_contract.keys import history_keys

CHUNK_WORDS = 1024
"""A page: less would take as much of a device."""

WORD_BYTES = 4

NAME_SUFFIX = "/tokens"
"""What the name of the sequence has after that of the conversation."""

SETTLE_S = 5.0
"""How long a session that has ended may take to let go of its unflushed words."""

POLL_S = 0.02

AnswerT = TypeVar("AnswerT")

LEASE_MS = 60_000
"""Longer than adding words may take."""


def words_layout(model: str) -> StateLayout:
    """One layer of 4 bytes a token: what goes into ``model``, a fingerprint, as token ids."""
    return StateLayout(
        model=model,
        dtype="uint32",
        layers=(LayerState(StateKind.HIDDEN, WORD_BYTES),),
        chunk_tokens=CHUNK_WORDS,
        rotary=Rotary.ABSENT,
    )


class Journal:
    """The words of all conversations of a model, or of all of another ``kind`` of thing.

    Each kind has a suffix of its own. Thread-safe where its client is.

    Raises ConversationError where words cannot be read or made durable, also with a client that
    does not raise: unlike states, nothing can compute them again.
    """

    def __init__(
        self,
        client: Client,
        model: str,
        *,
        kind: str = "conversation",
        suffix: str = NAME_SUFFIX,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._layout = words_layout(model)
        self._kind = kind
        self._suffix = suffix
        self._clock = clock
        self._unsettled: dict[str, list[int]] = {}
        """All words of sequences to which some were added that are not durable yet."""

    def open(self, name: str) -> tuple[int, ...]:
        """All durable words of a conversation; one of a new name has none."""
        info = self._settled(name)
        if info is None:
            self._create(name)
            return ()
        return self._checked(name, info)

    def read(self, name: str) -> tuple[int, ...] | None:
        """As ``open``, but None where there is none of that name; nothing is made."""
        info = self._settled(name)
        return None if info is None else self._checked(name, info)

    def _create(self, name: str) -> None:
        if self._client.sequences.create(name + self._suffix, self._layout) is None:
            raise _unanswered(f"{self._kind} {name!r}")

    def _checked(self, name: str, info: SequenceInfo) -> tuple[int, ...]:
        """Its words; raises OtherModelError where they are another model's."""
        self._check_model(name, info)
        return self._read(name, info)

    def _check_model(self, name: str, info: SequenceInfo) -> None:
        if info.layout_id != self._layout.layout_id:
            raise OtherModelError(
                f"{self._kind} {name!r} belongs to another model; use another name"
            )

    def make(self, name: str) -> bool:
        """Makes the sequence of a new name; False where somebody has made it already."""
        info = self._settled(name)
        if info is None:
            self._create(name)
            return True
        self._check_model(name, info)
        return False

    def is_there(self, name: str) -> bool:
        """Whether somebody has made this name."""
        return self._get(name) is not None

    def is_empty(self, name: str) -> bool:
        """Whether nothing was added under this name, by anybody, durable or not."""
        info = self._get(name)
        return info is not None and not (info.staged_tokens or info.keys or info.tail_key)

    def append(self, name: str, words: Sequence[int], new_words: Sequence[int]) -> None:
        """Adds to the ``words`` that are there; what was added is durable when it returns.

        What the store has lost of ``words`` since they were read is put there again.
        """
        lease = self._kept(name, words)
        added = [*words, *new_words]
        try:
            self._add(name, len(words), added)
        finally:
            if lease is not None:
                lease.release()

    def _add(self, name: str, first: int, added: Sequence[int]) -> None:
        keys = self._keys(added)
        while first < len(added):
            stop = min(first + CHUNK_WORDS, len(added))
            self._append(name, first, added[first:stop], keys)
            # Not before: the words that are there may be those of another turn.
            self._unsettled[name] = list(added)
            first = stop
        info = self._flush(name, keys, len(added))
        if info is None or info.durable_tokens != len(added):
            raise ConversationError(
                f"the turn of {self._kind} {name!r} could not be made durable in time; open it "
                "again to see whether it has happened"
            )
        self._unsettled.pop(name, None)

    def _flush(self, name: str, keys: Sequence[bytes], count: int) -> SequenceInfo | None:
        """Makes ``count`` words durable; ``keys`` are of their chunks."""
        tail_key = keys[-1] if count % CHUNK_WORDS else b""
        return self._client.sequences.flush(name + self._suffix, tail_key, expected_tokens=count)

    def fork(self, name: str, new_name: str) -> None:
        """Gives a new conversation the words of another one."""
        if self._client.sequences.fork(name + self._suffix, new_name + self._suffix) is None:
            raise ConversationError(
                f"{self._kind} {name!r} could not be forked: it is not there, or {new_name!r} is"
            )

    def delete(self, name: str) -> bool:
        """Forgets a conversation; False when there was none."""
        was_there = answered(
            self._client,
            "sequence_delete",
            lambda: self._client.sequences.delete(name + self._suffix),
            f"to forget {self._kind} {name!r}",
        )
        # Not before: what is still there may have to be made durable.
        self._unsettled.pop(name, None)
        return was_there

    def names(self) -> list[str]:
        """Names of the namespace's conversations, of all models."""
        found = answered(
            self._client,
            "sequence_list",
            self._client.sequences.list,
            f"a list of every {self._kind}",
        )
        return [name.removesuffix(self._suffix) for name in found if name.endswith(self._suffix)]

    def _keys(self, words: Sequence[int]) -> list[bytes]:
        return history_keys(namespace=self._client.namespace, layout=self._layout, token_ids=words)

    def _kept(self, name: str, words: Sequence[int]) -> Lease | None:
        """Has the store keep what is there; None where there are no words.

        A sequence whose tail is gone ends before it from the next append on. So without this, a
        conversation whose words are evicted during a turn would be shorter then, or empty, and
        nobody would know.
        """
        keys = self._keys(words)
        lease = self._client.pin(self._layout, keys, lease_ms=LEASE_MS) if keys else None
        missing = [
            chunk for chunk in range(len(keys)) if lease is None or not lease.is_pinned[chunk]
        ]
        if not missing:
            return lease
        if lease is not None:
            lease.release()
        for chunk in missing:
            self._put(keys[chunk], chunk, words[chunk * CHUNK_WORDS : (chunk + 1) * CHUNK_WORDS])
        lease = self._client.pin(self._layout, keys, lease_ms=LEASE_MS)
        if lease is None or not all(lease.is_pinned):
            raise ConversationError(
                f"the store has lost token ids of conversation {name!r}, and could not take them "
                "once more; open it again"
            )
        return lease

    def _put(self, key: bytes, chunk: int, words: Sequence[int]) -> None:
        region = self._client.allocate(Placement.contiguous_bytes(self._layout, 1))
        if region is None:
            return
        with region:
            region.numpy(np.uint32, (len(words),))[:] = words
            self._client.put(
                self._layout,
                [NewChunk(key=key, token_count=len(words), stripe=chunk)],
                Placement.contiguous(region, self._layout),
                ack=Ack.DURABLE,
            )

    def _settled(self, name: str) -> SequenceInfo | None:
        """The sequence once nothing of it is undurable.

        A writer that died leaves such words, of which the daemon lets go. What this journal could
        not make durable it tries again: its own session keeps it.
        """
        deadline_s = self._clock() + SETTLE_S
        while True:
            info = self._found(name)
            if info is None or info.staged_tokens == info.durable_tokens:
                self._unsettled.pop(name, None)
                return info
            ours = self._unsettled.get(name, [])[: info.staged_tokens]
            if len(ours) == info.staged_tokens:
                self._flush(name, self._keys(ours), len(ours))
            if self._clock() >= deadline_s:
                raise ConversationError(f"somebody else is adding to {self._kind} {name!r}")
            time.sleep(POLL_S)

    def _found(self, name: str) -> SequenceInfo | None:
        """The sequence, with its length: without its layout a daemon says that it is 0."""
        info = self._get(name)
        if info is None or not self._has_lost_its_length(info):
            return info
        # The daemon hears of a layout with the first call that names it.
        self._client.match(self._layout, info.keys[:1] or (info.tail_key,))
        info = self._get(name)
        if info is not None and self._has_lost_its_length(info):
            raise ConversationError(
                f"the daemon does not say how long {self._kind} {name!r} is; open it again"
            )
        return info

    def _get(self, name: str) -> SequenceInfo | None:
        return answered(
            self._client,
            "sequence_get",
            lambda: self._client.sequences.get(name + self._suffix),
            f"{self._kind} {name!r}",
        )

    def _has_lost_its_length(self, info: SequenceInfo) -> bool:
        is_ours = info.layout_id == self._layout.layout_id
        return is_ours and info.durable_tokens == 0 and bool(info.keys or info.tail_key)

    def _read(self, name: str, info: SequenceInfo) -> tuple[int, ...]:
        words: list[int] = []
        keys = [*info.keys, info.tail_key] if info.tail_key else info.keys
        at_once = self._chunks_at_once()
        for part in (keys[first : first + at_once] for first in range(0, len(keys), at_once)):
            count = min(len(part) * CHUNK_WORDS, info.durable_tokens - len(words))
            region = self._client.allocate(Placement.contiguous_bytes(self._layout, len(part)))
            if region is None:
                raise ConversationError(f"no room in the arena to read {self._kind} {name!r}")
            with region:
                place = Placement.contiguous(region, self._layout)
                with self._client.read(self._layout, part, place) as read:
                    read.wait()
                    if read.report().resident_prefix < len(part):
                        raise self._unread(name, part)
                    words += region.numpy(np.uint32, (count,)).tolist()
        return tuple(words)

    def _unread(self, name: str, keys: Sequence[bytes]) -> ConversationError:
        """Why words could not be read: only a store that answers can have lost them."""
        found = self._client.changes(keys=keys)
        if found is None or all(found.are_stored):
            return ConversationError(
                f"the store did not hand out the token ids of {self._kind} {name!r} in time; open "
                "it again"
            )
        return LostWordsError(
            f"the store has lost token ids of {self._kind} {name!r}; start a new one with the "
            "text that you have of it"
        )

    def _append(self, name: str, first: int, batch: Sequence[int], keys: Sequence[bytes]) -> None:
        """Adds at most a chunk's words from number ``first`` on; ``keys`` are of all chunks."""
        geometry = SnapshotGeometry(self._layout, len(batch))
        region = self._client.allocate(geometry.byte_count)
        if region is None:
            raise ConversationError(f"no room in the arena to save {self._kind} {name!r}")
        with region:
            region.numpy(np.uint32, (len(batch),))[:] = batch
            item = AppendItem(
                sequence=name + self._suffix,
                first_token=first,
                first_row=0,
                token_count=len(batch),
                keys=keys[first // CHUNK_WORDS : (first + len(batch)) // CHUNK_WORDS],
            )
            report = self._client.append(self._layout, region, len(batch), [item])
        if not (report.is_served and report.results[0].is_taken):
            raise ConversationError(
                f"the turn of {self._kind} {name!r} could not be saved "
                f"({report.results[0].reason.name}): open it again"
            )

    def _chunks_at_once(self) -> int:
        # A small share: snapshots and spans need the arena as well.
        chunk_bytes = Placement.contiguous_bytes(self._layout, 1)
        return max(1, min(CHUNK_WORDS, self._client.region_bytes_max // 16 // chunk_bytes))


def answered(client: Client, verb: str, ask: Callable[[], AnswerT], what: str) -> AnswerT:
    """What the store answers; raises ConversationError where it says nothing.

    To the client that is the same as "there is none". Failures of other threads count too: then
    somebody asks again without need.
    """
    counter = f"{verb}_failed"
    failures = client.counters.get(counter, 0)
    answer = ask()
    if not answer and client.counters.get(counter, 0) != failures:
        raise _unanswered(what)
    return answer


def _unanswered(what: str) -> ConversationError:
    return ConversationError(f"the store did not answer, or refused {what}; see its log")
