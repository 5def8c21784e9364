"""What the store has of a request, and the question after it. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from engine_adapters.vllm.identity.chunk_keys import KeyChain


class Held(Protocol):
    """What keeps chunks from being evicted: a lease."""

    def release(self) -> object:
        """Ends it; whether it had ended already matters to nobody here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The longest prefix that all ranks have stored.

    ``chain`` is None when there is no daemon that takes the layouts. ``leases`` keep the chunks
    from being evicted. ``entries`` are what was found of each entry of a linked prompt, whose own
    leases are among these.
    """

    chain: KeyChain | None = None
    chunk_count: int = 0
    leases: tuple[Held, ...] = ()
    entries: tuple["Found", ...] = ()

    def chain_keys(self, chunks: range) -> tuple[bytes, ...]:
        """Those of some of its chunks."""
        assert self.chain is not None, "chunks were found, so there is a chain"
        return tuple(self.chain.extend(())[chunks.start : chunks.stop])


class Question(Protocol):
    """One question on its way. Thread-safe."""

    def result(self, wait_s: float) -> Found | None:
        """The answer; None while there may still be one. Nothing found after the deadline."""

    def cancel(self) -> bool:
        """Withdraws the question; False when asking it has begun, or is over."""

    def when_found(self, use: Callable[[Found], None]) -> None:
        """Has ``use`` get the answer, in the thread in which it comes."""
