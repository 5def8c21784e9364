"""Rows of blocks that a thread of its own gathers when they have come from the device."""

import logging
import queue
import threading
from collections.abc import Sequence

import torch

from engine_adapters.vllm.blocks.block_rows import BlockRows, RowWork

LOGGER = logging.getLogger("vllm.kvstored")
CLOSE_S = 10.0
"""Longest that the end of the engine waits for what was asked for."""


class LateRows:
    """Does one thing after the other with ``rows``, in the order in which it was asked for.

    So a save finds the rows of all forwards before it, and a load makes the rows of those
    forwards forgotten, however late they come. Thread-safe.
    """

    def __init__(self, rows: BlockRows) -> None:
        self._rows = rows
        self._works: queue.SimpleQueue[RowWork | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="kvstored-rows", daemon=True)
        self._thread.start()

    def use(self, work: RowWork) -> None:
        """Has ``work`` done after everything that was asked for before."""
        self._works.put(work)

    def forget(self, block_ids: Sequence[int]) -> None:
        """As ``BlockRows.forget``."""
        self.use(lambda rows: rows.forget(block_ids))

    def close(self) -> None:
        """Ends the thread after everything that was asked for, or after CLOSE_S.

        Until then it works with memory that the engine is about to give back.
        """
        self._works.put(None)
        self._thread.join(CLOSE_S)

    def _run(self) -> None:
        # Engines make their tensors in this mode, and it belongs to a thread.
        with torch.inference_mode():
            while (work := self._works.get()) is not None:
                try:
                    work(self._rows)
                except Exception:
                    LOGGER.exception("kvstored: gathered layer inputs are forgotten")
                    self._rows.clear()
                # What it refers to, the memory of a session maybe, is not kept until the next one.
                del work
