"""Whether the forward of a step came to its end."""

import sys


class ForwardWatch:
    """vLLM's V1 runner ends a step in a ``finally``: also where a forward failed, or a signal came.

    Blocks hold what was never computed then. Belongs to the engine's thread.
    """

    def __init__(self) -> None:
        self._outer: BaseException | None = None

    def begin(self) -> None:
        """Before a forward; an engine may be called while another error is handled."""
        self._outer = sys.exception()

    @property
    def has_failed(self) -> bool:
        """After it."""
        return sys.exception() is not self._outer
