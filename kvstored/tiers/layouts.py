"""The layouts of which chunks may be stored: each fits every place where a chunk lies."""

import threading
from collections.abc import Callable

from kvstored.format.geometry import class_bytes
from kvstored.tiers.chunks.requests import LayoutRefusedError
from kvstored_contract.layout import StateLayout

KNOWN_LAYOUTS_MAX = 4096
"""Layouts that are known without the index; beyond them the oldest goes."""


class Layouts:
    """Checks layouts, has the index keep them, and finds them by their ids. Thread-safe.

    ``slab_bytes`` bounds a chunk, ``slice_bytes_max`` a slice of a codec: encoded slices are never
    whole pages, and so go through memory of that size. ``keep`` puts a layout into the index if
    that has room, ``kept`` finds one there.
    """

    def __init__(
        self,
        *,
        slab_bytes: int,
        slice_bytes_max: int,
        keep: Callable[[StateLayout], None],
        kept: Callable[[bytes], StateLayout | None],
    ) -> None:
        self._slab_bytes = slab_bytes
        self._slice_bytes_max = slice_bytes_max
        self._keep = keep
        self._kept = kept
        self._lock = threading.Lock()
        self._known: dict[bytes, StateLayout] = {}

    def find(self, layout_id: bytes) -> StateLayout | None:
        """One that was registered since the start, or that the index has; raises IndexFailure."""
        return self._known.get(layout_id) or self._kept(layout_id)

    def register(self, layout: StateLayout) -> None:
        """Checks that chunks of a layout fit; raises LayoutRefusedError."""
        layout_id = layout.layout_id
        if layout_id in self._known:
            return
        slice_bytes = layout.layer_stride
        if layout.is_encoded and slice_bytes > self._slice_bytes_max:
            raise LayoutRefusedError(
                f"a slice of this layout takes up to {slice_bytes} bytes but one of a codec may "
                f"have {self._slice_bytes_max}; use a smaller chunk_tokens or a larger "
                "read_bytes_max"
            )
        size = class_bytes(layout)
        if size > self._slab_bytes:
            raise LayoutRefusedError(
                f"a chunk of this layout takes {size} bytes but a slab holds {self._slab_bytes}; "
                "use a smaller chunk_tokens or a larger slab_bytes"
            )
        self._keep(layout)
        with self._lock:
            if len(self._known) >= KNOWN_LAYOUTS_MAX:
                del self._known[next(iter(self._known))]
            self._known[layout_id] = layout
