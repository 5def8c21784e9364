"""What came and went in a store in memory."""

from collections.abc import Mapping

from kvstored_client.testing.stored_chunk import StoredChunk
from kvstored_protos.v1 import store_pb2

CHANGES_PER_ANSWER_MAX = 2048


class MemoryChanges:
    """Finds changes by looking at all chunks, as a test may change them at will.

    As in the daemon they are remembered from the first question on, until a restart.
    """

    def __init__(self) -> None:
        self._epoch = 0
        self._known: dict[bytes, StoredChunk] = {}
        self._changes: list[store_pb2.Change] = []
        self._forgotten = 0

    def forget(self) -> None:
        """A follower has missed something from now on, as if too much had happened."""
        self._forgotten += len(self._changes) + 1
        self._changes.clear()

    def answer(
        self, request: store_pb2.ChangesRequest, chunks: Mapping[bytes, StoredChunk], epoch: int
    ) -> store_pb2.ChangesReply:
        """What the daemon answers in this epoch."""
        if self._epoch != epoch:
            self._epoch, self._known = epoch, dict(chunks)
            self._changes.clear()
            self._forgotten = 0
        self.look(chunks)
        last = self._forgotten + len(self._changes)
        is_lost = request.epoch != epoch or not self._forgotten <= request.after_sequence <= last
        first = 0 if is_lost else request.after_sequence - self._forgotten
        told = self._changes[first : first + CHANGES_PER_ANSWER_MAX]
        told_last = self._forgotten + first + len(told)
        return store_pb2.ChangesReply(
            epoch=epoch,
            last_sequence=told_last,
            lost=is_lost,
            changes=told,
            has_more=told_last < last,
            is_stored=[key in chunks for key in request.keys],
        )

    def look(self, chunks: Mapping[bytes, StoredChunk]) -> None:
        """Notes what has changed since the last look, if somebody follows."""
        if self._epoch == 0:
            return
        for key, known in self._known.items():
            if chunks.get(key) is not known:
                self._changes.append(store_pb2.Change(kind=store_pb2.CHANGE_KIND_REMOVED, key=key))
        for key, chunk in chunks.items():
            if self._known.get(key) is not chunk:
                self._changes.append(
                    store_pb2.Change(kind=store_pb2.CHANGE_KIND_STORED, key=key, note=chunk.note)
                )
        self._known = dict(chunks)
