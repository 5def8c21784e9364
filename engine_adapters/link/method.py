"""Which tokens of entries are computed again when they are linked (EPIC, section 4). Pure."""

import re
from dataclasses import dataclass

_ATTNLINK = re.compile(r"attnlink-([1-9][0-9]{0,5})")
_CACHEBLEND = re.compile(r"cacheblend-([1-9][0-9]?|100)")


@dataclass(frozen=True, slots=True)
class LinkMethod:
    """At each boundary ``half`` tokens before it and ``half`` after it; None for all tokens.

    A boundary is where two parts of a prompt meet. No more tokens are taken than the part has.
    ``deviating_percent`` of all tokens of entries are those whose states deviate most from what
    the prompt would give them.
    """

    half: int | None
    deviating_percent: int = 0

    @classmethod
    def named(cls, name: str) -> "LinkMethod":
        """The method of that name.

        ``naive`` computes no token of an entry again, ``full`` all of them, and ``attnlink-k``
        ``k / 2`` tokens on both sides of each boundary. ``cacheblend-r`` computes ``r`` percent of
        them, those that deviate most (CacheBlend). Raises ValueError for any other name, and for an
        odd ``k``.
        """
        if name == "naive":
            return cls(0)
        if name == "full":
            return cls(None)
        blended = _CACHEBLEND.fullmatch(name)
        if blended is not None:
            return cls(0, int(blended[1]))
        matched = _ATTNLINK.fullmatch(name)
        if matched is None or int(matched[1]) % 2:
            raise ValueError(
                "a method of linking is naive, full, attnlink-k with an even k, or cacheblend-r "
                f"with r from 1 to 100, not {name!r}"
            )
        return cls(int(matched[1]) // 2)

    def __str__(self) -> str:
        if self.deviating_percent:
            return f"cacheblend-{self.deviating_percent}"
        if self.half is None:
            return "full"
        return f"attnlink-{2 * self.half}" if self.half else "naive"
