"""Appends snapshots to sequences of the store from a background thread: one call a step."""

from collections.abc import Sequence

from engine_adapters.runner.save.save_queue import Rows, SavedSequence, SaveQueue
from engine_adapters.runner.save.snapshot import Snapshot
from kvstored_client import AppendItem, Reason

FLUSH_TIMEOUT_MS = 2000
"""How long the end of a sequence waits for the devices; snapshots of others wait behind it."""


class AppendQueue(SaveQueue):
    """The daemon gathers the rows into chunks: for layouts without a codec."""

    def _open(self, sequence: SavedSequence) -> None:
        if sequence.is_kept:
            self._open_kept(sequence)
            return
        keys = self._keys(sequence, sequence.first_token)
        created = None
        if len(keys) * self._layout.chunk_tokens == sequence.first_token:
            created = self._client.sequences.create(
                sequence.name, self._layout, keys=keys, ephemeral=True
            )
        if created is None:
            sequence.is_stopped = True

    def _open_kept(self, sequence: SavedSequence) -> None:
        """Goes on with the sequence of this name if it ends here, or begins a new one."""
        first, sequences = sequence.first_token, self._client.sequences
        keys = self._keys(sequence, first)
        found = sequences.get(sequence.name)
        if found is not None:
            is_same = found.layout_id == self._layout.layout_id and found.keys == tuple(keys)
            if is_same and found.staged_tokens == found.durable_tokens == first:
                sequence.is_open = found.tail_key == self._tail_key(sequence, first)
            if not sequence.is_open:
                # Its chunks stay, and are found by their keys.
                sequences.delete(sequence.name)
        if not sequence.is_open and len(keys) * self._layout.chunk_tokens == first:
            made = sequences.create(
                sequence.name, self._layout, keys=keys, ephemeral=sequence.keeps_tail
            )
            sequence.is_open = made is not None
        sequence.is_stopped = not sequence.is_open

    def _append(self, snapshot: Snapshot, rows: Sequence[Rows]) -> None:
        try:
            snapshot.settle()
            items = {part: item for part in rows if (item := self._item(part)) is not None}
            report = self._client.append(
                self._layout, snapshot.region, snapshot.row_count, list(items.values())
            )
        except BaseException:
            # Which rows the store has taken is not known.
            for part in rows:
                part.sequence.is_stopped = True
                self.count_dropped(part.token_count)
            raise
        finally:
            snapshot.region.release()
        for part, result in zip(items, report.results, strict=True):
            sequence = part.sequence
            if report.is_served:
                # Shorter than before when a chunk that was complete could not be stored.
                sequence.length_tokens = result.length_tokens
            if not result.is_taken:
                sequence.is_stopped = True
                taken = result.length_tokens - part.first_token if report.is_served else 0
                self.count_dropped(part.token_count - max(0, taken))
        for part in rows:
            if part not in items:
                part.sequence.is_stopped = True
                self.count_dropped(part.token_count)

    def _item(self, part: Rows) -> AppendItem | None:
        """None for a sequence that is stopped or that has no keys."""
        sequence, stop = part.sequence, part.first_token + part.token_count
        if sequence.is_stopped:
            return None
        chunk_tokens = self._layout.chunk_tokens
        keys = self._keys(sequence, stop)
        if len(keys) < stop // chunk_tokens:
            return None
        return AppendItem(
            sequence=sequence.name,
            first_token=part.first_token,
            first_row=part.first_row,
            token_count=part.token_count,
            keys=keys[part.first_token // chunk_tokens : stop // chunk_tokens],
        )

    def _close_sequence(self, sequence: SavedSequence) -> None:
        """Counts what is durable in the end, and what is on its way there.

        Nobody waits long for a slow device: chunks that are staged become durable whether or
        not their sequence is there.
        """
        sequences, chunk_tokens = self._client.sequences, self._layout.chunk_tokens
        if sequence.is_kept:
            self._flush_kept(sequence)
            if sequence.keeps_tail:
                # Nothing can follow its tail, and its chunks are found by their keys.
                sequences.delete(sequence.name)
            return
        tail_tokens = sequence.length_tokens % chunk_tokens
        whole_tokens = sequence.length_tokens - tail_tokens
        if tail_tokens:
            sequences.truncate_tokens(sequence.name, tail_tokens)
        if whole_tokens > sequence.first_token:
            flushed = sequences.flush(
                sequence.name, b"", expected_tokens=whole_tokens, timeout_ms=FLUSH_TIMEOUT_MS
            )
            durable_tokens = flushed.durable_tokens if flushed else sequence.first_token
            is_late = flushed is not None and flushed.reason is Reason.DEADLINE
            saved_tokens = whole_tokens if is_late else durable_tokens
            self._count_saved(
                saved_tokens - sequence.first_token, late_tokens=saved_tokens - durable_tokens
            )
            self.count_dropped(whole_tokens - saved_tokens)
        sequences.delete(sequence.name)

    def _flush_kept(self, sequence: SavedSequence) -> None:
        """Makes the whole of a sequence that is kept durable, its tail included."""
        length = sequence.length_tokens
        # Shorter than it began where the store has lost its tail.
        if not sequence.is_open or length <= sequence.first_token:
            return
        flushed = self._client.sequences.flush(
            sequence.name,
            self._tail_key(sequence, length),
            expected_tokens=length,
            timeout_ms=FLUSH_TIMEOUT_MS,
        )
        durable_tokens = max(flushed.durable_tokens if flushed else 0, sequence.first_token)
        saved_tokens = durable_tokens
        if flushed is not None and flushed.reason is Reason.DEADLINE:
            # The tail alone is not on its way.
            whole_tokens = length - length % self._layout.chunk_tokens
            saved_tokens = max(durable_tokens, whole_tokens)
        self._count_saved(
            saved_tokens - sequence.first_token, late_tokens=saved_tokens - durable_tokens
        )
        self.count_dropped(length - saved_tokens)
