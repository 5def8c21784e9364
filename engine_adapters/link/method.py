"""Which tokens of entries are computed again when they are linked (EPIC, section 4). Pure."""

import re
from dataclasses import dataclass

_ATTNLINK = re.compile(r"attnlink-([1-9][0-9]{0,5})")


@dataclass(frozen=True, slots=True)
class LinkMethod:
    """At each boundary ``half`` tokens before it and ``half`` after it; None for all tokens.

    A boundary is where two parts of a prompt meet. No more tokens are taken than the part has.
    """

    half: int | None

    @classmethod
    def named(cls, name: str) -> "LinkMethod":
        """The method of that name.

        ``naive`` computes no token of an entry again, ``full`` all of them, and ``attnlink-k``
        ``k / 2`` tokens on both sides of each boundary. Raises ValueError for any other name, and
        for an odd ``k``.
        """
        if name == "naive":
            return cls(0)
        if name == "full":
            return cls(None)
        matched = _ATTNLINK.fullmatch(name)
        if matched is None or int(matched[1]) % 2:
            raise ValueError(
                f"a method of linking is naive, full, or attnlink-k with an even k, not {name!r}"
            )
        return cls(int(matched[1]) // 2)

    def __str__(self) -> str:
        if self.half is None:
            return "full"
        return f"attnlink-{2 * self.half}" if self.half else "naive"
