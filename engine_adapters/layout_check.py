"""Whether the daemon takes the layouts of an adapter."""

import logging
import threading
from collections.abc import Sequence

from kvstored_client import Client, StateLayout
from kvstored_contract.limits import KEY_BYTES

_REFUSALS = "match_failed_LayoutRefused"
"""How the client counts a match of a layout that the daemon does not register."""


class LayoutCheck:
    """Asks each daemon that comes once: what it refuses would be a miss for ever.

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
        self._asked_epoch = 0
        self._is_refused = False

    def is_refused(self) -> bool:
        """Whether the daemon refuses one of the layouts; False while there is none.

        Does not connect; waits for the first answer of each daemon.
        """
        with self._lock:
            epoch = self._client.epoch
            if epoch == 0:
                return False
            if epoch != self._asked_epoch:
                self._asked_epoch = epoch
                self._ask()
            return self._is_refused

    def _ask(self) -> None:
        refused = next((layout for layout in self._layouts if self._refuses(layout)), None)
        if refused is not None and not self._is_refused:
            self._logger.warning("%s", refusal_of(refused))
        self._is_refused = refused is not None

    def _refuses(self, layout: StateLayout) -> bool:
        """The daemon sees a layout with the first call that names it; the key is nobody's."""
        before = self._client.counters.get(_REFUSALS, 0)
        self._client.match(layout, [bytes(KEY_BYTES)], lease_ms=0)
        return self._client.counters.get(_REFUSALS, 0) > before


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
