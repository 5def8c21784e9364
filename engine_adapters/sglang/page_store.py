"""What the backend asks of the store: batches of pages, each a hit or a miss of its own."""

import ctypes
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from engine_adapters.breaker import Breaker
from engine_adapters.sglang.page_format import PageFormat
from kvstored_client import Client, NewChunk, Order, Placement, PutOutcome, Region

PUT_TIMEOUT_MS = 5000
READ_TIMEOUT_MS = 10_000

SPAN_BYTES_MAX = 64 * 1024 * 1024
"""Arena bytes that one call takes, unless a page is larger."""

Pages = Sequence[Sequence[int]]
"""Addresses of the fragments of each page in the pool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageStore:
    """Pages by SGLang's names. Thread-safe, as the client is; a failure is a miss."""

    client: Client
    format: PageFormat
    breaker: Breaker = field(default_factory=Breaker)

    def count(self, names: Sequence[str]) -> int:
        """How many leading pages are stored; none while the daemon hangs."""
        if not self.breaker.admits():
            return 0
        with self.breaker.watch():
            keys = self._keys(names)
            return self.client.match(self.format.layout, keys).chunk_count if keys else 0

    def store(self, names: Sequence[str], pages: Pages, *, parent: str = "") -> list[bool]:
        """Which pages can be read from now on. ``parent`` is the name of the page before them."""
        stored = [False] * len(names)
        keys = self._keys(names)
        before = [*self._keys([parent])] if parent else [b""]
        for span in self._spans(len(keys)):
            region = self.client.allocate(len(span) * self._stride)
            if region is None:
                break
            with region:
                for number, place in enumerate(span):
                    for address, target, size in self._fragments(region, number, pages[place]):
                        ctypes.memmove(target, address, size)
                report = self.client.put(
                    self.format.layout,
                    [
                        NewChunk(
                            key=keys[place],
                            parent_key=keys[place - 1] if place else before[0],
                            token_count=self.format.layout.chunk_tokens,
                            stripe=place,
                        )
                        for place in span
                    ],
                    Placement.contiguous(region, self.format.layout),
                    timeout_ms=PUT_TIMEOUT_MS,
                )
            for place, result in zip(span, report.results, strict=True):
                stored[place] = result.outcome in (PutOutcome.STORED, PutOutcome.EXISTED)
            if not all(stored[place] for place in span):
                break
        return stored

    def load(self, names: Sequence[str], pages: Pages) -> list[bool]:
        """Which pages are in the pool now, every byte of them; the others are as before.

        None is behind one that is missing: SGLang uses a prefix only.
        """
        loaded = [False] * len(names)
        keys = self._keys(names)
        for span in self._spans(len(keys)):
            region = self.client.allocate(len(span) * self._stride)
            if region is None:
                break
            with region:
                with self.client.read(
                    self.format.layout,
                    keys[span.start : span.stop],
                    Placement.contiguous(region, self.format.layout),
                    order=Order.HEAD_FIRST,
                    timeout_ms=READ_TIMEOUT_MS,
                ) as read:
                    arrived = read.wait().resident_prefix
                for number, place in enumerate(span[:arrived]):
                    for address, source, size in self._fragments(region, number, pages[place]):
                        ctypes.memmove(address, source, size)
                    loaded[place] = True
            if arrived < len(span):
                break
        return loaded

    def cleared(self) -> "PageStore":
        """A store of the same pages that finds none of those stored before."""
        return replace(self, format=replace(self.format, generation=secrets.token_hex(16)))

    def _keys(self, names: Sequence[str]) -> list[bytes]:
        """None at all while no daemon answers: it names the namespace."""
        if not self.client.available():
            return []
        return self.format.keys_of(names, namespace=self.client.namespace)

    @property
    def _stride(self) -> int:
        return Placement.contiguous_bytes(self.format.layout, 1)

    def _spans(self, count: int) -> Iterator[range]:
        room = min(SPAN_BYTES_MAX, self.client.region_bytes_max // 4)
        step = max(1, room // self._stride)
        return (range(first, min(first + step, count)) for first in range(0, count, step))

    def _fragments(
        self, region: Region, number: int, page: Sequence[int]
    ) -> Iterator[tuple[int, int, int]]:
        """Address in the pool, address in the region and size of each fragment of a page."""
        base = ctypes.addressof(ctypes.c_char.from_buffer(region.view)) + number * self._stride
        places = range(base, base + self._stride, self.format.layout.layer_stride)
        yield from zip(page, places, self.format.fragment_bytes, strict=True)
