"""Whether the daemon takes the layouts of an adapter."""

import logging
import threading
from collections.abc import Sequence

from kvstored_client import Client, StateLayout, StoreError


class LayoutCheck:
    """Asks the daemon once in each session: what it refuses would be a miss for ever.

    It refuses chunks that are larger than what a slab holds and, with a codec, slices that are
    larger than its ``read_bytes_max``. One sentence of ``logger`` says so. Thread-safe.
    """

    def __init__(
        self, client: Client, layouts: Sequence[StateLayout], logger: logging.Logger
    ) -> None:
        self._client = client
        self._layouts = tuple(layouts)
        self._logger = logger
        self._lock = threading.Lock()
        self._was_refused = False

    def is_refused(self) -> bool:
        """Whether the daemon refuses one of the layouts; False while there is none.

        Waits for the first answer in each session. A daemon that does not answer has not refused.
        """
        if self._client.epoch == 0:
            return False
        refused = next((layout for layout in self._layouts if self._refuses(layout)), None)
        with self._lock:
            is_news = refused is not None and not self._was_refused
            self._was_refused = refused is not None
        if refused is not None and is_news:
            self._logger.warning("%s", refusal_of(refused))
        return refused is not None

    def _refuses(self, layout: StateLayout) -> bool:
        try:
            return self._client.register(layout) is False
        except StoreError:
            # Of a strict client: the calls that follow tell its user.
            return False


def refusal_of(layout: StateLayout) -> str:
    """What a user should know of a layout that was refused, and can do."""
    setting = "a larger slab_bytes"
    if layout.is_encoded:
        setting = "a larger read_bytes_max (for slices) or slab_bytes (for chunks)"
    return (
        "kvstored saves and restores nothing: the daemon refuses chunks of "
        f"{layout.chunk_bytes()} bytes with slices of up to {layout.layer_stride}; use a smaller "
        f"chunk_tokens, or give the daemon {setting}"
    )
