"""What a store must have, may have and must not have: a plain dictionary for each."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from kvstored.tiers.chunks.requests import PutOutcome, PutTicket
from kvstored_contract.reasons import Reason
from tests.faults.media.served import settled


@dataclass(frozen=True, slots=True)
class Staged:
    """A put whose end nobody has looked at. ``before`` are the versions that it replaces."""

    version: int
    ticket: PutTicket
    before: frozenset[int]


@dataclass(slots=True)
class Model:
    """The versions of chunks by their numbers.

    ``may_be`` has what a read may give: nothing where a number is not in it. ``durable``
    has what must be there unless there is a reason. A put replaces what was there only
    when it is durable: until then a chunk on a failed device may come back.
    """

    may_be: dict[int, set[int]] = field(default_factory=dict)
    durable: dict[int, int] = field(default_factory=dict)
    staged: dict[int, Staged] = field(default_factory=dict)
    next_version: int = 0

    def versions_for(self, numbers: Iterable[int]) -> dict[int, int]:
        """A version that was never used for each chunk that is put."""
        versions = {}
        for number in numbers:
            self.next_version += 1
            versions[number] = self.next_version
        return versions

    def was_put(self, number: int, version: int, ticket: PutTicket) -> None:
        """Hears the answer to a put."""
        if ticket.outcome is PutOutcome.EXISTED:
            assert self.may_be.get(number), f"chunk {number} exists and was never stored"
        elif ticket.outcome is PutOutcome.STORED:
            self.settle(number)
            before = frozenset(self.may_be.get(number, ()))
            self.staged[number] = Staged(version, ticket, before)
            self.may_be[number] = {version}
            # What was there before was not visible, or it would have existed.
            self.durable.pop(number, None)

    def settle(self, number: int) -> None:
        """Waits for the end of a put that was staged, if there is one."""
        staged = self.staged.pop(number, None)
        if staged is None:
            return
        if settled(staged.ticket) is Reason.UNSPECIFIED:
            self.durable[number] = staged.version
        else:
            self.may_be[number] = set(staged.before)

    def settle_done(self) -> None:
        """Takes note of the puts that have ended."""
        for number, staged in list(self.staged.items()):
            if staged.ticket.durable is None or staged.ticket.durable.done():
                self.settle(number)

    def settle_all(self) -> None:
        """Waits for every put."""
        for number in list(self.staged):
            self.settle(number)

    def was_deleted(self, number: int) -> None:
        """Hears that a deletion is durable."""
        self.staged.pop(number, None)
        self.may_be.pop(number, None)
        self.durable.pop(number, None)

    def may_be_lost(self, number: int) -> None:
        """The chunk was evicted or damaged: it need not be there any more."""
        self.durable.pop(number, None)

    def crashed(self) -> None:
        """What was not acknowledged may be there, or what was there before it."""
        for number, staged in self.staged.items():
            self.may_be[number] = {staged.version, *staged.before}
        self.staged.clear()
