"""Which chunks of entries the store has, and where in a prompt they go."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from engine_adapters.link.plan import LinkPlan
from engine_adapters.link.rows import chunk_ranges, loaded_chunks
from engine_adapters.reading.piece import Piece
from engine_adapters.reading.stored_pieces import StoredPieces
from kvstored_client import Client, Lease, StateLayout
from kvstored_contract.keys import history_keys

NO_SINKS: Mapping[str, Sequence[int]] = {}


class Place(NamedTuple):
    """Chunk ``chunk`` of entry number ``entry`` of a plan, and the position of its first token.

    Its first ``sink_rows`` rows are of a sink, which is in no prompt.
    """

    entry: int
    chunk: int
    first_position: int
    sink_rows: int = 0


class EntryFinder:
    """Asks the store for the chunks of a plan that are worth loading, on the thread of a reader.

    The states of an entry are those of a prompt that begins with its tokens, or with its sink and
    then its tokens. So its chunks have the keys of such a prompt, with nothing before the first
    one; the last chunk may be short.
    """

    def __init__(
        self,
        client: Client,
        layout: StateLayout,
        plan: LinkPlan,
        token_ids: Sequence[int],
        *,
        sinks: Mapping[str, Sequence[int]] = NO_SINKS,
        lease_ms: int,
    ) -> None:
        """``token_ids`` are those of the whole prompt, ``sinks`` of each sink by its entry's id."""
        self._client = client
        self._layout = layout
        self.plan = plan
        self._token_ids = token_ids
        self._sinks = sinks
        self._lease_ms = lease_ms
        self.places: tuple[tuple[Place, ...], ...] = ()
        """Of each piece that was found: everywhere it goes, in order of positions."""

    def __call__(self) -> StoredPieces:
        """Each stored chunk once, at the first of its places."""
        wanted = self._wanted()
        keys = list(wanted)
        lease = None
        if keys:
            lease = self._client.pin(self._layout, keys, lease_ms=self._lease_ms)
        is_stored = (False,) * len(keys) if lease is None else lease.is_pinned
        stored = [(key, *wanted[key]) for key, has in zip(keys, is_stored, strict=True) if has]
        self.places = tuple(tuple(places) for _, _, places in stored)
        pieces = tuple(Piece(key, places[0].first_position, count) for key, count, places in stored)
        return StoredPieces(pieces=pieces, is_stored=(True,) * len(pieces), lease=lease)

    def _wanted(self) -> dict[bytes, tuple[int, list[Place]]]:
        """By key, how many tokens a chunk has and where it goes."""
        wanted: dict[bytes, tuple[int, list[Place]]] = {}
        if not self._client.namespace:
            # No daemon has said whose keys these would be.
            return wanted
        chunk_tokens = self._layout.chunk_tokens
        known: dict[str, list[bytes]] = {}
        for number, entry in enumerate(self.plan.entries):
            positions = entry.positions
            if entry.entry_id not in known:
                known[entry.entry_id] = history_keys(
                    namespace=self._client.namespace,
                    layout=self._layout,
                    token_ids=[
                        *self._sinks.get(entry.entry_id, ()),
                        *self._token_ids[positions.start : positions.stop],
                    ],
                )
            keys = known[entry.entry_id]
            chunks = chunk_ranges(entry, chunk_tokens)
            for chunk in loaded_chunks(self.plan, entry, chunk_tokens):
                sink_rows = max(0, entry.sink_count - chunk * chunk_tokens)
                row_count = sink_rows + len(chunks[chunk])
                _, places = wanted.setdefault(keys[chunk], (row_count, []))
                places.append(Place(number, chunk, chunks[chunk].start, sink_rows))
        return wanted

    def pinned(self, lease_ms: int) -> Lease | None:
        """A lease of what is stored of these chunks; None where nothing is."""
        keys = list(self._wanted())
        return self._client.pin(self._layout, keys, lease_ms=lease_ms) if keys else None
