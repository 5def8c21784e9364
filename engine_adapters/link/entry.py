"""What an entry is, and how it is written as 32-bit words under a name. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kvstored_contract.keys import token_bytes
from kvstored_contract.layout import hash_fields

NEVER = 0
"""The time of expiry of an entry that stays."""

TTL_S_MAX = 365 * 24 * 3600
"""The longest time to live that users may ask for: times of expiry are words of 32 bits."""

_DIGEST_BYTES = 16
_TAG_BYTES = 8
_NAME = re.compile(r"(cc-[0-9a-f]{24})\.([0-9a-f]{32})(?:\.([0-9]{1,10})\.([0-9a-f]{16}))?")
_PLAIN = 1
_AFTER_SINK = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Tokens whose states are computed on their own, and linked at any position (EPIC).

    They are computed after ``sink_ids``, which are dropped when the entry is linked. Times are in
    seconds since 1970; ``expires_s`` is None for an entry that stays until somebody ends it.
    """

    entry_id: str
    token_ids: tuple[int, ...]
    created_s: int
    expires_s: int | None
    sink_ids: tuple[int, ...] = ()


class EntryTitle(NamedTuple):
    """What the name of an entry says: how many tokens it has, and the tag of its namespace.

    ``token_count`` and ``tag`` are None in names that were given before they had these.
    """

    entry_id: str
    digest: str
    token_count: int | None
    tag: str | None

    def __str__(self) -> str:
        return ".".join(str(part) for part in self if part is not None)

    @classmethod
    def of_name(cls, name: str) -> "EntryTitle | None":
        """None for a name that is no entry's."""
        matched = _NAME.fullmatch(name)
        if matched is None:
            return None
        count = None if matched[3] is None else int(matched[3])
        return cls(matched[1], matched[2], count, matched[4])


def namespace_tag(namespace: bytes) -> str:
    """Tells entries of namespaces apart that have their names in common."""
    return hash_fields([b"kvstored.entry.namespace.1", namespace])[:_TAG_BYTES].hex()


def entry_digest(
    token_ids: Sequence[int], sink_ids: Sequence[int], *, namespace: bytes, model: str
) -> str:
    """Tells entries of a model in a namespace apart by their tokens, and by those before them."""
    fields = [b"kvstored.entry.1", namespace, model.encode(), token_bytes(token_ids)]
    if sink_ids:
        fields = [b"kvstored.entry.2", *fields[1:], token_bytes(sink_ids)]
    return hash_fields(fields)[:_DIGEST_BYTES].hex()


def entry_words(entry: Entry) -> list[int]:
    """A version, when it was made, how many token ids there are, these, and when it expires.

    With a sink the number of its ids, and these, are before the token ids. Later times of expiry
    may follow, and the last one counts.
    """
    expiry = NEVER if entry.expires_s is None else entry.expires_s
    head = [entry.created_s, len(entry.token_ids)]
    if not entry.sink_ids:
        return [_PLAIN, *head, *entry.token_ids, expiry]
    sink = [len(entry.sink_ids), *entry.sink_ids]
    return [_AFTER_SINK, *head, *sink, *entry.token_ids, expiry]


def entry_of_words(entry_id: str, words: Sequence[int]) -> Entry | None:
    """The entry that words tell of; None for words that a writer did not finish."""
    if len(words) < 3 or words[0] not in (_PLAIN, _AFTER_SINK):
        return None
    version, created_s, count, *rest = words
    sink_ids: list[int] = []
    if version == _AFTER_SINK and rest:
        sink_count = rest[0]
        sink_ids, rest = rest[1 : 1 + sink_count], rest[1 + sink_count :]
    if len(rest) <= count:
        return None
    return Entry(
        entry_id=entry_id,
        token_ids=tuple(rest[:count]),
        created_s=created_s,
        expires_s=None if rest[-1] == NEVER else rest[-1],
        sink_ids=tuple(sink_ids),
    )
