"""How many sessions there may be, and how much memory their arenas may have together."""

from kvstored.server.errors import refuse
from kvstored_contract.limits import ALIGNMENT_BYTES
from kvstored_contract.reasons import Reason

OPERATOR_SESSIONS_MAX = 16
"""Sessions of operators: no engine takes their places."""


class Places:
    """What sessions have taken of what there is. Belongs to the event loop.

    ``sessions_limit`` and ``arenas_limit`` name the limits to whom they refuse.
    """

    def __init__(
        self,
        *,
        sessions_max: int,
        arenas_bytes_max: int,
        sessions_limit: str,
        arenas_limit: str,
    ) -> None:
        self.arenas_bytes_max = arenas_bytes_max
        self.arenas_bytes = 0
        self._session_count = 0
        self._sessions_max = sessions_max
        self._sessions_limit = sessions_limit
        self._arenas_limit = arenas_limit

    def take(self, arena_bytes: int) -> None:
        """A session with such an arena begins; raises RefusedError."""
        if self._session_count >= self._sessions_max:
            refuse(
                Reason.LIMIT_EXCEEDED,
                f"{self._sessions_max} sessions are open, as many as {self._sessions_limit} allows",
            )
        if self.arenas_bytes + arena_bytes > self.arenas_bytes_max:
            refuse(
                Reason.LIMIT_EXCEEDED,
                f"all arenas together would exceed {self._arenas_limit} "
                f"({self.arenas_bytes_max} bytes)",
            )
        self._session_count += 1
        self.arenas_bytes += arena_bytes

    def give_back(self, arena_bytes: int) -> None:
        """A session that had such an arena is over, and its memory free."""
        self._session_count -= 1
        self.arenas_bytes -= arena_bytes


def operators_places() -> Places:
    """Those that are kept for operators, each with the smallest arena."""
    return Places(
        sessions_max=OPERATOR_SESSIONS_MAX,
        arenas_bytes_max=OPERATOR_SESSIONS_MAX * ALIGNMENT_BYTES,
        sessions_limit="the limit of sessions of operators",
        arenas_limit="the limit of arenas of operators",
    )
