"""The entries of a namespace by their ids: what they say, and until when."""

import re
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from engine_adapters.conversation.errors import ConversationError
from engine_adapters.conversation.journal import Journal
from engine_adapters.link.errors import ExpiredError, LinkError
from kvstored_client import Client
from kvstored_contract.keys import token_bytes
from kvstored_contract.layout import hash_fields

NAME_SUFFIX = "/context-cache"
"""What the name of the sequence has after the id and the digest of an entry."""

ID_BYTES = 12
"""Random bytes of an id: nobody guesses one, and no two are alike."""

_DIGEST_BYTES = 16
_NAME = re.compile(r"(cc-[0-9a-f]{24})\.([0-9a-f]{32})")
_VERSION = 1
_HEADER_WORDS = 3
_NEVER = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Tokens whose states are computed on their own, and linked at any position (EPIC).

    Times are in seconds since 1970; ``expires_s`` is None for an entry that stays until somebody
    ends it.
    """

    entry_id: str
    token_ids: tuple[int, ...]
    created_s: int
    expires_s: int | None


class Entries:
    """The entries of a namespace with one model. Thread-safe where its client is.

    The token ids of an entry lie in a sequence of their own (``Journal``), so that states that are
    lost can be computed again. Its name has the id, which is random, and a digest of the tokens:
    the same tokens have one id. Another namespace, or salt, cannot use it. The words are a version,
    the time of creation, the number of tokens, the token ids, and the time of expiry (0: never);
    each renewal adds another time, and the last one counts.

    Raises LinkError where the store cannot tell an entry or keep it, and ExpiredError for an id
    that is over.
    """

    def __init__(
        self, client: Client, model: str, *, clock: Callable[[], float] = time.time
    ) -> None:
        """``model`` is the fingerprint in the layouts of its states."""
        self._client = client
        self._model = model
        self._journal = Journal(client, model, kind="context cache", suffix=NAME_SUFFIX)
        self._clock = clock

    def find(self, token_ids: Sequence[int]) -> Entry | None:
        """The entry of exactly these tokens, if there is one."""
        digest = self._digest(token_ids)
        for entry_id, name in sorted(self._names().items()):
            if name.endswith(digest):
                entry = self._read(entry_id, name)
                if entry is not None:
                    return entry
        return None

    def get(self, entry_id: str) -> Entry:
        """The entry of this id."""
        name = self._names().get(entry_id)
        entry = None if name is None else self._read(entry_id, name)
        if entry is None:
            raise ExpiredError(entry_id)
        return entry

    def add(self, token_ids: Sequence[int], *, ttl_s: int | None = None) -> Entry:
        """A new entry, which expires after ``ttl_s``; durable when it returns."""
        now_s = int(self._clock())
        entry = Entry(
            entry_id=f"cc-{secrets.token_hex(ID_BYTES)}",
            token_ids=tuple(token_ids),
            created_s=now_s,
            expires_s=None if ttl_s is None else now_s + ttl_s,
        )
        name = self._name(entry)
        try:
            self._journal.append(name, self._journal.open(name), _words(entry))
        except ConversationError as error:
            raise LinkError(str(error)) from error
        return entry

    def renew(self, entry: Entry, *, ttl_s: int | None = None) -> Entry:
        """Has an entry last for at least ``ttl_s`` from now on (None: until somebody ends it)."""
        wanted = None if ttl_s is None else int(self._clock()) + ttl_s
        if entry.expires_s is None or (wanted is not None and wanted <= entry.expires_s):
            return entry
        name = self._name(entry)
        try:
            self._journal.append(name, self._journal.open(name), [wanted or _NEVER])
        except ConversationError as error:
            raise LinkError(str(error)) from error
        return replace(entry, expires_s=wanted)

    def list(self) -> list[Entry]:
        """All entries, in order of their ids."""
        found = (self._read(entry_id, name) for entry_id, name in sorted(self._names().items()))
        return [entry for entry in found if entry is not None]

    def expire(self, entry_id: str) -> bool:
        """Ends an entry; False when there was none. Requests that have begun go on with it.

        Its states stay until they are evicted, as those of any prompt: others may share them.
        """
        name = self._names().get(entry_id)
        return name is not None and self._journal.delete(name)

    def _names(self) -> dict[str, str]:
        """By id, the names of all entries of the namespace, those of other models included."""
        found = (_NAME.fullmatch(name) for name in self._journal.names())
        return {matched[1]: matched[0] for matched in found if matched is not None}

    def _read(self, entry_id: str, name: str) -> Entry | None:
        """None for an entry that has expired, was never finished, or belongs to another model."""
        try:
            words = self._journal.open(name)
        except ConversationError as error:
            raise LinkError(f"{error}; make it again with generate_context_cache") from error
        entry = _entry(entry_id, words)
        if entry is None or not name.endswith(self._digest(entry.token_ids)):
            return None
        if entry.expires_s is not None and entry.expires_s <= self._clock():
            self._journal.delete(name)
            return None
        return entry

    def _name(self, entry: Entry) -> str:
        return f"{entry.entry_id}.{self._digest(entry.token_ids)}"

    def _digest(self, token_ids: Sequence[int]) -> str:
        if not self._client.namespace and not self._client.available():
            raise LinkError(
                "the store did not answer, so there is no context cache to find or make"
            )
        # Clients with another salt have the same names of sequences, but no states in common.
        namespace = self._client.namespace.encode()
        fields = [b"kvstored.entry.1", namespace, self._model.encode(), token_bytes(token_ids)]
        return hash_fields(fields)[:_DIGEST_BYTES].hex()


def _words(entry: Entry) -> list[int]:
    expiry = _NEVER if entry.expires_s is None else entry.expires_s
    return [_VERSION, entry.created_s, len(entry.token_ids), *entry.token_ids, expiry]


def _entry(entry_id: str, words: Sequence[int]) -> Entry | None:
    """None for words that a writer did not finish."""
    if len(words) <= _HEADER_WORDS or words[0] != _VERSION:
        return None
    _, created_s, count, *rest = words
    if len(rest) <= count:
        return None
    return Entry(
        entry_id=entry_id,
        token_ids=tuple(rest[:count]),
        created_s=created_s,
        expires_s=None if rest[-1] == _NEVER else rest[-1],
    )
