"""Which tokens of entries are computed again when they are linked (EPIC, section 4). Pure."""

import re
from dataclasses import dataclass

_ATTNLINK = re.compile(r"attnlink-([1-9][0-9]{0,5})")
_CACHEBLEND = re.compile(r"cacheblend-([1-9][0-9]?|100)")
_RANKED = re.compile(r"(query|split)-([1-9][0-9]{0,5})")

_SHARES = {"query": 2, "split": 4}
"""What the ``k`` of a method must be a multiple of."""


@dataclass(frozen=True, slots=True)
class LinkMethod:
    """At each boundary ``half`` tokens before it and ``half`` after it; None for all tokens.

    A boundary is where two parts of a prompt meet. No more tokens are taken than the part has.
    ``deviating_percent`` of all tokens of entries are those whose states deviate most from what
    the prompt would give them. With ``ranked_k`` there are as many tokens of entries as
    ``attnlink-k`` computes, and those that no boundary takes are chosen by the query.
    """

    half: int | None
    deviating_percent: int = 0
    ranked_k: int = 0

    @classmethod
    def named(cls, name: str) -> "LinkMethod":
        """The method of that name.

        ``naive`` computes no token of an entry again, ``full`` all of them, and ``attnlink-k``
        ``k / 2`` tokens on both sides of each boundary. ``cacheblend-r`` computes ``r`` percent of
        them, those that deviate most (CacheBlend). ``query-k`` computes as many as ``attnlink-k``,
        those to which the query attends most (ProphetKV), and ``split-k`` those of
        ``attnlink-k/2``, and for the rest of ``k`` those that the query chooses. Raises ValueError
        for any other name, and for a ``k`` that cannot be divided so.
        """
        if name == "naive":
            return cls(0)
        if name == "full":
            return cls(None)
        blended = _CACHEBLEND.fullmatch(name)
        if blended is not None:
            return cls(0, int(blended[1]))
        linked = _ATTNLINK.fullmatch(name)
        if linked is not None and not int(linked[1]) % 2:
            return cls(int(linked[1]) // 2)
        ranked = _RANKED.fullmatch(name)
        if ranked is not None and not int(ranked[2]) % _SHARES[ranked[1]]:
            k = int(ranked[2])
            return cls(k // 4 if ranked[1] == "split" else 0, ranked_k=k)
        raise ValueError(
            "a method of linking is naive, full, attnlink-k or query-k with an even k, split-k "
            "with a k that 4 divides, or cacheblend-r with r from 1 to 100, "
            f"not {name!r}"
        )

    @property
    def boundary_only(self) -> "LinkMethod":
        """The method that takes at boundaries all tokens that this one ranks as well."""
        return LinkMethod(self.ranked_k // 2) if self.ranked_k else self

    def __str__(self) -> str:
        if self.deviating_percent:
            return f"cacheblend-{self.deviating_percent}"
        if self.ranked_k:
            return f"{'split' if self.half else 'query'}-{self.ranked_k}"
        if self.half is None:
            return "full"
        return f"attnlink-{2 * self.half}" if self.half else "naive"
