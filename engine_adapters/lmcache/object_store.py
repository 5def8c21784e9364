"""What the connector asks of the store: batches of objects, each a hit or a miss of its own."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import wait
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from engine_adapters.breaker import Breaker
from engine_adapters.lmcache.found_leases import FoundLeases
from engine_adapters.lmcache.stored_object import OBJECT_BYTES_MAX, key_of, layout_of
from engine_adapters.started_pool import started_pool
from kvstored_client import (
    Client,
    NewChunk,
    Order,
    Placement,
    PutOutcome,
    Region,
    SliceState,
    StateLayout,
)

PUT_TIMEOUT_MS = 5000
READ_TIMEOUT_MS = 10_000
LOOKUP_LEASE_MS = 20_000
"""How long what was found is kept for its load."""

SPANS_MAX = 8
"""Calls that share the arena: each takes at most so large a part of it, but one object."""
PUT_BYTES = 16 * 1024 * 1024
"""Of one put, but for larger objects: while the daemon takes it another one is filled."""
PUT_THREADS = SPANS_MAX // 2
"""Of all calls together; the other half of the arena is for loads."""

MISFITS_MAX = 65_536
"""Names that are remembered because their objects did not load."""

Bytes = NDArray[np.uint8]


class ObjectStore:
    """Objects by LMCache's names. Thread-safe, as the client is; a failure is a miss."""

    def __init__(self, client: Client, *, weights: str) -> None:
        self._client = client
        self._weights = weights
        self._puts = started_pool(PUT_THREADS, "kvstored-put")
        self._breaker = Breaker()
        self._found = FoundLeases(lease_s=LOOKUP_LEASE_MS / 1000)
        # Found and not loaded: other bytes are stored under these names, of another size say.
        self._misfits: set[bytes] = set()

    def store(self, names: Sequence[str], sources: Sequence[Bytes]) -> list[bool]:
        """Which objects can be read from now on."""
        keys = self._keys(names)
        self._drop_misfits(keys)
        spans = list(self._spans(sources if keys else (), span_bytes=PUT_BYTES))
        puts = [self._puts.submit(self._put, *span, keys, sources) for span in spans]
        # The sources are the caller's again when it has an answer, also one that says no.
        wait(puts)
        stored: set[int] = set()
        for span, put in zip(spans, puts, strict=True):
            found = put.result()
            if found is None:
                # The others had the arena.
                found = self._put(*span, keys, sources)
            stored.update(found or ())
        return [place in stored for place in range(len(names))]

    def _put(
        self,
        layout: StateLayout,
        places: Sequence[int],
        keys: Sequence[bytes],
        sources: Sequence[Bytes],
    ) -> list[int] | None:
        """Stores the objects of some places; which can be read now, None without room for them."""
        region = self._client.allocate(len(places) * _stride(layout))
        if region is None:
            return None
        with region:
            for number, place in enumerate(places):
                _object_in(region, layout, number)[:] = sources[place]
            report = self._client.put(
                layout,
                [NewChunk(key=keys[place], token_count=1, stripe=place) for place in places],
                Placement.contiguous(region, layout),
                timeout_ms=PUT_TIMEOUT_MS,
            )
        return [
            place
            for place, result in zip(places, report.results, strict=True)
            if result.outcome in (PutOutcome.STORED, PutOutcome.EXISTED)
        ]

    def load(self, names: Sequence[str], targets: Sequence[Bytes]) -> list[bool]:
        """Which objects are in their targets now, every byte of them; the others are as before."""
        loaded = [False] * len(names)
        keys = self._keys(names)
        for layout, places in self._spans(targets if keys else ()):
            region = self._client.allocate(len(places) * _stride(layout))
            if region is None:
                continue
            with (
                region,
                self._client.read(
                    layout,
                    [keys[place] for place in places],
                    Placement.contiguous(region, layout),
                    order=Order.HEAD_FIRST,
                    timeout_ms=READ_TIMEOUT_MS,
                ) as read,
            ):
                for number, place in enumerate(places):
                    # Each is copied while the next one comes.
                    if read.wait_for(number):
                        targets[place][:] = _object_in(region, layout, number)
                        loaded[place] = True
                    elif read.state(number, 0) is SliceState.MISSING:
                        self._remember(keys[place])
        return loaded

    def find(self, names: Sequence[str]) -> list[bool]:
        """Which objects are stored; those are kept from eviction for ``LOOKUP_LEASE_MS``.

        None at all while the daemon hangs: look-ups wait in a row.
        """
        if not self._breaker.admits():
            return [False] * len(names)
        with self._breaker.watch():
            keys = self._keys(names)
            # Any layout will do: what is stored is known by its key.
            lease = self._client.pin(layout_of(1), keys, lease_ms=LOOKUP_LEASE_MS) if keys else None
            if lease is None:
                return [False] * len(names)
            self._found.keep(lease)
            return list(lease.is_pinned)

    def delete(self, names: Sequence[str]) -> list[bool]:
        """Which objects are not stored any more; none where the daemon does not say."""
        keys = self._keys(names)
        return self._deleted(keys) if keys else [False] * len(names)

    def _deleted(self, keys: Sequence[bytes]) -> list[bool]:
        self._client.delete(keys)
        # A deletion that was refused, and one of what was not there, deletes nothing either.
        left = self._client.changes(keys=keys)
        return [left is not None and not left.are_stored[place] for place in range(len(keys))]

    def close(self) -> None:
        """Ends the session; every later call is a miss."""
        self._puts.shutdown()
        self._client.close()

    def _remember(self, misfit: bytes) -> None:
        if len(self._misfits) < MISFITS_MAX:
            self._misfits.add(misfit)

    def _drop_misfits(self, keys: Sequence[bytes]) -> None:
        """Deletes what is stored under these keys and did not load: a put would leave it there."""
        stale = [key for key in keys if key in self._misfits]
        if stale:
            is_gone = self._deleted(stale)
            self._misfits.difference_update(compress(stale, is_gone))

    def _keys(self, names: Sequence[str]) -> list[bytes]:
        """None at all while no daemon was ever reached: it names the namespace."""
        if not self._client.available():
            return []
        namespace = self._client.namespace
        return [key_of(name, namespace=namespace, weights=self._weights) for name in names]

    def _spans(
        self, objects: Sequence[Bytes], *, span_bytes: int = OBJECT_BYTES_MAX
    ) -> Iterator[tuple[StateLayout, list[int]]]:
        """Places of objects of one size that go in one call; without those that are too large."""
        by_size: dict[int, list[int]] = defaultdict(list)
        for place, each in enumerate(objects):
            if 0 < each.nbytes <= OBJECT_BYTES_MAX:
                by_size[each.nbytes].append(place)
        for byte_count, places in by_size.items():
            layout = layout_of(byte_count)
            room = min(span_bytes, self._client.region_bytes_max // SPANS_MAX)
            step = max(1, room // _stride(layout))
            for first in range(0, len(places), step):
                yield layout, places[first : first + step]


def _stride(layout: StateLayout) -> int:
    return Placement.contiguous_bytes(layout, 1)


def _object_in(region: Region, layout: StateLayout, number: int) -> Bytes:
    """The bytes of one of a region's objects."""
    return region.numpy(np.uint8, (layout.chunk_bytes(),), number * _stride(layout))
