"""Whether the daemon takes new work: sessions and writes. Belongs to the event loop."""

from collections.abc import Iterator
from contextlib import contextmanager

from kvstored.server.errors import refuse
from kvstored_contract.reasons import Reason

WRITES = frozenset(
    {
        "kvstored.v1.StoreService/Put",
        "kvstored.v1.StoreService/Append",
        "kvstored.v1.SequenceService/Create",
        "kvstored.v1.SequenceService/AppendChunks",
        "kvstored.v1.SequenceService/Fork",
    }
)
"""Methods that bring something new. A flush makes durable what is there, and is let in."""


class Intake:
    """Open until an operator drains the daemon, and again when it takes that back."""

    def __init__(self) -> None:
        self.is_open = True
        self.write_count = 0
        """Writes that were let in and are not answered."""

    def check(self) -> None:
        """Raises RefusedError while it is closed."""
        if not self.is_open:
            refuse(
                Reason.DRAINING,
                "an operator drains the daemon, so that it takes nothing new; go on without it "
                "until `kvstored drain --resume`",
            )

    @contextmanager
    def call(self, method: str) -> Iterator[None]:
        """Counts a call while the body serves it, if it writes; raises RefusedError."""
        if method not in WRITES:
            yield
            return
        self.check()
        self.write_count += 1
        try:
            yield
        finally:
            self.write_count -= 1
