"""The part of the load that appends: open tails of all lengths, flushed, cut, forked and ended."""

import random
from collections.abc import Sequence

from kvstored_client import AppendItem, Client, SequenceInfo, StateLayout
from kvstored_contract.limits import KEY_BYTES
from kvstored_contract.snapshot import SnapshotGeometry

SEQUENCES = 24
"""Some of them end with the session that made them."""
CHUNKS_MAX = 10
"""A sequence as long as this ends or loses its front."""
STEP_ITEMS = 3
STEP_TOKENS = (1, 1, 2, 40, 130)


class GrowingLoad:
    """Steps of a load over sequences that all sessions share. Not thread-safe.

    A step begins with the sequence as it is; what another session changes meanwhile makes it a
    refused one. ``payload`` is at least as long as a snapshot that an arena has room for.
    """

    def __init__(
        self, layouts: Sequence[StateLayout], *, source: random.Random, payload: bytes
    ) -> None:
        self._layouts = layouts
        self._source = source
        self._payload = payload

    def append(self, client: Client) -> None:
        """One step of a batch of sequences of one layout."""
        count = len(self._layouts)
        first = self._source.randrange(count)
        others = range(first, SEQUENCES, count)
        layout = self._layouts[first]
        items: list[AppendItem] = []
        row_count = 0
        for number in self._source.sample(others, STEP_ITEMS):
            name, found = self._find(client, number)
            if found is None or self._ends(client, name, found):
                continue
            token_count = self._source.choice(STEP_TOKENS)
            end = found.staged_tokens + token_count
            complete = end // layout.chunk_tokens - found.staged_tokens // layout.chunk_tokens
            items.append(
                AppendItem(
                    sequence=name,
                    first_token=found.staged_tokens,
                    first_row=row_count,
                    token_count=token_count,
                    keys=[self._key() for _ in range(complete)],
                )
            )
            row_count += token_count
        if not items:
            return
        region = client.allocate(SnapshotGeometry(layout, row_count).byte_count)
        if region is None:
            return
        with region:
            region.view[:] = self._payload[: region.byte_count]
            client.append(layout, region, row_count, items)

    def flush(self, client: Client) -> None:
        """Makes a sequence durable."""
        name, found = self._find(client, self._source.randrange(SEQUENCES))
        if found is not None:
            key = self._key() if found.tail_tokens else b""
            client.sequences.flush(name, key, expected_tokens=found.staged_tokens)

    def cut(self, client: Client) -> None:
        """Takes tokens or a chunk from the back, or makes a fork that grows and goes."""
        name, found = self._find(client, self._source.randrange(SEQUENCES))
        if found is None or not found.staged_tokens:
            return
        what = self._source.randrange(4)
        if what == 0:
            client.sequences.truncate_back(name, min(1, len(found.keys)))
        elif what == 1:
            client.sequences.fork(name, f"{name} fork")
            client.sequences.delete(f"{name} fork")
        else:
            tokens = self._source.randint(1, min(found.staged_tokens, 100))
            client.sequences.truncate_tokens(name, tokens)

    def _ends(self, client: Client, name: str, found: SequenceInfo) -> bool:
        """Whether a sequence is too long; it is shorter then, or gone."""
        if len(found.keys) < CHUNKS_MAX:
            return False
        if self._source.random() < 0.5:
            client.sequences.truncate_front(name, CHUNKS_MAX // 2)
        else:
            client.sequences.delete(name)
        return True

    def _find(self, client: Client, number: int) -> tuple[str, SequenceInfo | None]:
        """A sequence, made when it is not there; None when that fails."""
        name = f"growing {number}"
        found = client.sequences.get(name)
        if found is None:
            layout = self._layouts[number % len(self._layouts)]
            is_ephemeral = self._source.random() < 0.3
            found = client.sequences.create(name, layout, ephemeral=is_ephemeral)
        return name, found

    def _key(self) -> bytes:
        return self._source.randbytes(KEY_BYTES)
