"""A stretch of the arena that the engine owns."""

from collections.abc import Callable
from math import prod
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

if TYPE_CHECKING:
    import torch


class Region:
    """Memory shared with the daemon, 4 KiB aligned, owned until it is released.

    The bytes stay mapped as long as the region or a view of it lives, even after the
    daemon's death; only ``is_current`` tells whether the daemon still sees them. A view
    that outlives ``release`` aliases memory of a later region: drop views first, and
    finish every read into the region first. Methods may be called from any thread.
    """

    __slots__ = ("_is_alive", "_release", "_view", "arena", "byte_count", "offset")

    def __init__(
        self,
        view: memoryview,
        *,
        arena: object,
        offset: int,
        is_alive: Callable[[], bool],
        release: Callable[[int], None],
    ) -> None:
        self.arena = arena
        self.offset = offset
        self.byte_count = len(view)
        self._view: memoryview | None = view
        self._is_alive = is_alive
        self._release = release

    @property
    def view(self) -> memoryview:
        """All bytes, writable. Raises ValueError when the region was released."""
        if self._view is None:
            raise ValueError("the region was released; allocate another")
        return self._view

    @property
    def is_current(self) -> bool:
        """Whether the region may be named in a call: not released, and its session lives."""
        return self._view is not None and self._is_alive()

    def numpy(self, dtype: DTypeLike, shape: tuple[int, ...], offset: int = 0) -> NDArray[Any]:
        """Array of ``shape`` and ``dtype`` over the bytes from ``offset`` on; aliases the arena.

        Raises ValueError when it would not fit.
        """
        return np.ndarray(shape, dtype, buffer=self._cut(np.dtype(dtype).itemsize, shape, offset))

    def tensor(
        self, dtype: "torch.dtype", shape: tuple[int, ...], offset: int = 0
    ) -> "torch.Tensor":
        """CPU tensor of ``shape`` and ``dtype`` from byte ``offset`` on; aliases the arena.

        Raises ValueError when it would not fit. Imports torch.
        """
        import torch

        part = self._cut(dtype.itemsize, shape, offset)
        if not part:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(part, dtype=dtype).reshape(shape)

    def release(self) -> None:
        """Gives the bytes back to the arena. A second call does nothing."""
        if self._view is not None:
            self._view = None
            self._release(self.offset)

    def _cut(self, item_bytes: int, shape: tuple[int, ...], offset: int) -> memoryview:
        needed = item_bytes * prod(shape)
        if offset < 0 or needed < 0 or offset + needed > self.byte_count:
            raise ValueError(
                f"{needed} bytes at offset {offset} do not fit into a region of "
                f"{self.byte_count} bytes"
            )
        return self.view[offset : offset + needed]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
