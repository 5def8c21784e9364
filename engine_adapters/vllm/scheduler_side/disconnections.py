"""Why an engine has no session, as counts. Pure."""

from collections.abc import Mapping
from typing import Protocol

from kvstored_contract.reasons import REFUSED, Reason

_BY_REASON = {
    Reason.LIMIT_EXCEEDED.name: "disconnected_limit",
    Reason.ACCESS_REFUSED.name: "disconnected_access",
}


class Counting(Protocol):
    """A client, as far as it counts."""

    @property
    def counters(self) -> Mapping[str, int]:
        """What it has counted so far, by name."""


class Disconnections:
    """Attempts to connect that failed, by cause. Belongs to one thread."""

    def __init__(self, client: Counting) -> None:
        self._client = client
        self._taken: dict[str, int] = {}

    def take(self) -> dict[str, int]:
        """Those since the last call, by the names of ``tally.COUNTERS``; never below 0.

        A failure and its cause are counted one after the other: in between it has no cause, and
        what was taken as absent then stands for the next one that is.
        """
        fresh: dict[str, int] = {}
        for name, count in causes_of(self._client.counters).items():
            taken = self._taken.get(name, 0)
            if count > taken:
                fresh[name] = count - taken
                self._taken[name] = count
        return fresh


def causes_of(counters: Mapping[str, int]) -> dict[str, int]:
    """How often a client (by its ``counters``) could not connect, by cause."""
    causes = {"disconnected_absent": counters.get("connect_failures", 0)}
    for name, count in counters.items():
        if name.startswith(REFUSED):
            cause = _BY_REASON.get(name.removeprefix(REFUSED), "disconnected_other")
            causes[cause] = causes.get(cause, 0) + count
            causes["disconnected_absent"] -= count
    return causes
