"""How many entries a namespace may have. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from engine_adapters.link.errors import QuotaError


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryQuota:
    """The most entries of a model in a namespace, and the most tokens in all of them.

    What counts is what the model can read. Of entries of another one nobody but that one knows
    which have expired, and what a writer did not finish is none. Two processes that make entries
    at the same moment may exceed it by what they make.
    """

    entries_max: int = 10_000
    tokens_max: int = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        if self.entries_max < 1 or self.tokens_max < 1:
            raise ValueError("a quota of entries allows at least one entry of one token")

    def check(self, held_tokens: Iterable[int], new_tokens: Iterable[int]) -> None:
        """Raises QuotaError where new entries do not fit beside those that are held.

        Both are the numbers of tokens of entries.
        """
        new = list(new_tokens)
        if not new:
            return
        every = [*held_tokens, *new]
        if len(every) > self.entries_max:
            raise QuotaError("entries_max", self.entries_max, len(every))
        if sum(every) > self.tokens_max:
            raise QuotaError("tokens_max", self.tokens_max, sum(every))
