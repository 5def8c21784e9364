"""What the store has of each entry of a request: several questions as one."""

import time
from collections.abc import Callable, Sequence

from engine_adapters.vllm.scheduler_side.found import Found, Question


class LinkQuestion:
    """Thread-safe. The answer names what was found of each entry, and keeps all leases."""

    def __init__(self, questions: Sequence[Question]) -> None:
        self._questions = tuple(questions)

    def result(self, wait_s: float) -> Found | None:
        """The answers; None while there may still be one more."""
        stop_s = time.monotonic() + wait_s
        found: list[Found] = []
        for question in self._questions:
            one = question.result(max(0.0, stop_s - time.monotonic()))
            if one is None:
                return None
            found.append(one)
        chains = [one.chain for one in found if one.chain is not None]
        return Found(
            chain=chains[0] if chains else None,
            chunk_count=sum(one.chunk_count for one in found),
            leases=tuple(lease for one in found for lease in one.leases),
            entries=tuple(found),
        )

    def late(self, found: Found) -> list[Question]:
        """The questions of which the deadline is over: what still comes has leases."""
        pairs = zip(self._questions, found.entries, strict=True)
        return [question for question, one in pairs if one.chain is None]

    def cancel(self) -> bool:
        """Withdraws the questions; False when asking one has begun, or is over."""
        cancelled = [question.cancel() for question in self._questions]
        return all(cancelled)

    def when_found(self, use: Callable[[Found], None]) -> None:
        """Has ``use`` get each answer of its own, in the thread in which it comes."""
        for question in self._questions:
            question.when_found(use)
