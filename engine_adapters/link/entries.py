"""The entries of a namespace by their ids: what they say, and until when."""

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from engine_adapters.conversation.errors import (
    ConversationError,
    LostWordsError,
    OtherModelError,
)
from engine_adapters.conversation.journal import Journal
from engine_adapters.link.entry import (
    NEVER,
    Entry,
    EntryTitle,
    entry_digest,
    entry_of_words,
    entry_words,
    namespace_tag,
)
from engine_adapters.link.errors import ExpiredError, LinkError, LostEntryError, QuotaError
from engine_adapters.link.quota import EntryQuota
from kvstored_client import Client

__all__ = ["DEFAULT_QUOTA", "NAME_SUFFIX", "Entries", "Entry"]

NAME_SUFFIX = "/context-cache"
"""What the name of the sequence has after the title of an entry."""

ID_BYTES = 12
"""Random bytes of an id: nobody guesses one, and no two are alike."""

DEFAULT_QUOTA = EntryQuota()


class _Held(NamedTuple):
    """An entry that is there: under which name, its words, and what they say."""

    title: EntryTitle
    words: Sequence[int]
    entry: Entry


class Entries:
    """The entries of a namespace with one model. Thread-safe where its client is.

    The token ids of an entry lie in a sequence of their own (``Journal``), so that states that are
    lost can be computed again. Its name has the id, which is random, a digest of the tokens, their
    number, and a tag of the namespace: the same tokens have one id. Another namespace, or salt,
    can neither use nor end it.

    Raises LinkError where the store cannot tell an entry or keep it, of which LostEntryError names
    one whose token ids are gone, and ExpiredError an id that is over.
    """

    def __init__(
        self,
        client: Client,
        model: str,
        *,
        quota: EntryQuota = DEFAULT_QUOTA,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``model`` is the fingerprint in the layouts of its states."""
        self._client = client
        self._model = model
        self._journal = Journal(client, model, kind="context cache", suffix=NAME_SUFFIX)
        self._quota = quota
        self._clock = clock
        self._known: dict[str, EntryTitle] = {}
        self._unfinished: set[EntryTitle] = set()
        """Names of entries that this process could not write: nobody knows their ids."""
        self._others: set[EntryTitle] = set()
        """Names that were found to be of entries of other models."""

    def find(self, token_ids: Sequence[int], *, sink_ids: Sequence[int] = ()) -> Entry | None:
        """The entry of exactly these tokens after that sink, if there is one.

        Looks at all names of the namespace only where it has not met the entry.
        """
        digest = self._digest(token_ids, sink_ids)
        return self._found(self._known, digest) or self._found(self._titles(), digest)

    def look_up(
        self,
        chunks: Iterable[Sequence[int]],
        *,
        ttl_s: int | None = None,
        sink_ids: Sequence[int] = (),
    ) -> Mapping[tuple[int, ...], Entry | None]:
        """The entry of each chunk of token ids; None for a new one.

        Looks at all names once, and not at all where it has met every entry.

        One whose token ids are lost is written once more: it keeps its id, and expires after
        ``ttl_s``. Raises QuotaError where those that are new do not fit.
        """
        self._delete_unfinished()
        found: dict[tuple[int, ...], Entry | None] = {}
        is_listed = False
        for chunk in map(tuple, chunks):
            if chunk in found:
                continue
            digest = self._digest(chunk, sink_ids)
            try:
                found[chunk] = self._found(self._known, digest)
                if found[chunk] is None and not is_listed:
                    is_listed = True
                    found[chunk] = self._found(self._titles(), digest)
            except LostEntryError as error:
                found[chunk] = self._mended(error.entry_id, chunk, ttl_s, sink_ids)
        self._check_room([len(chunk) for chunk, entry in found.items() if entry is None])
        return found

    def get(self, entry_id: str) -> Entry:
        """The entry of this id."""
        return self._held(entry_id).entry

    def add(
        self,
        token_ids: Sequence[int],
        *,
        ttl_s: int | None = None,
        sink_ids: Sequence[int] = (),
        has_room: bool = False,
    ) -> Entry:
        """A new entry, which expires after ``ttl_s``; durable when it returns.

        Raises QuotaError where it does not fit, unless ``look_up`` has said that it ``has_room``.
        """
        if not has_room:
            self._titles()
            self._check_room([len(token_ids)])
        self._delete_unfinished()
        title = self._title(f"cc-{secrets.token_hex(ID_BYTES)}", token_ids, sink_ids)
        try:
            return self._written(title, token_ids, ttl_s, sink_ids)
        except LinkError:
            # The store may not have answered the deletion either. Nobody else has this id.
            self._unfinished.add(title)
            raise

    def renew(self, entry: Entry, *, ttl_s: int | None = None) -> Entry:
        """Has an entry last for at least ``ttl_s`` from now on (None: until somebody ends it).

        Raises ExpiredError for one that has ended meanwhile: nothing is made.
        """
        wanted = None if ttl_s is None else int(self._clock()) + ttl_s
        # Another process may have renewed it, or ended it.
        held = self._held(entry.entry_id)
        expires_s = held.entry.expires_s
        if expires_s is None or (wanted is not None and wanted <= expires_s):
            return held.entry
        self._append(held.title, held.words, [wanted or NEVER])
        return replace(held.entry, expires_s=wanted)

    def keep(
        self,
        entry: Entry | None,
        token_ids: Sequence[int],
        *,
        ttl_s: int | None = None,
        sink_ids: Sequence[int] = (),
    ) -> Entry:
        """What ``look_up`` has found of these tokens lasts for at least ``ttl_s`` from now on.

        A new entry where there is none, or where it has ended since.
        """
        if entry is not None:
            # One that has ended leaves its room to the new one.
            with suppress(ExpiredError):
                return self.renew(entry, ttl_s=ttl_s)
        return self.add(token_ids, ttl_s=ttl_s, sink_ids=sink_ids, has_room=True)

    def list(self) -> list[Entry]:
        """All entries whose token ids are not lost, in order of their ids."""
        found: list[Entry] = []
        for _, title in sorted(self._titles().items()):
            try:
                entry = self._read(title)
            except LostEntryError:
                # Only who has the text can say what it was: ``get`` tells of it.
                continue
            if entry is not None:
                found.append(entry)
        return found

    def expire(self, entry_id: str) -> bool:
        """Ends an entry; False when there was none. Requests that have begun go on with it.

        Its states stay until they are evicted, as those of any prompt: others may share them.
        """
        title = self._titles().pop(entry_id, None)
        if title is None or (title.tag is None and self._read(title) is None):
            return False
        return self._deleted(title)

    def _titles(self) -> dict[str, EntryTitle]:
        """By id, those of all entries of the namespace, of other models as well.

        Those without a tag may be another namespace's: their digest tells.
        """
        tags = (None, namespace_tag(self._namespace()))
        try:
            names = self._journal.names()
        except ConversationError as error:
            raise LinkError(str(error)) from error
        found = map(EntryTitle.of_name, names)
        self._known = {
            title.entry_id: title for title in found if title is not None and title.tag in tags
        }
        self._others.intersection_update(self._known.values())
        return self._known

    def _found(self, titles: Mapping[str, EntryTitle], digest: str) -> Entry | None:
        for _, title in sorted(titles.items()):
            if title.digest == digest:
                entry = self._read(title)
                if entry is not None:
                    return entry
        return None

    def _held(self, entry_id: str) -> _Held:
        """The entry of this id; raises ExpiredError."""
        known = self._known.get(entry_id)
        held = None if known is None else self._look(known)
        if held is None:
            # Another process may have made it, or written it once more under another name.
            title = self._titles().get(entry_id)
            held = None if title is None or title == known else self._look(title)
        if held is None:
            self._check_store()
            raise ExpiredError(entry_id)
        return held

    def _read(self, title: EntryTitle) -> Entry | None:
        held = self._look(title)
        return None if held is None else held.entry

    def _look(self, title: EntryTitle) -> _Held | None:
        """None for an entry that has expired, was never finished, or belongs to another model."""
        try:
            words = self._journal.read(str(title))
        except LostWordsError as error:
            raise LostEntryError(title.entry_id) from error
        except OtherModelError:
            self._others.add(title)
            return None
        except ConversationError as error:
            raise LinkError(str(error)) from error
        entry = None if words is None else entry_of_words(title.entry_id, words)
        if words is None or entry is None:
            return None
        if title.digest != self._digest(entry.token_ids, entry.sink_ids):
            return None
        if entry.expires_s is not None and entry.expires_s <= self._clock():
            self._deleted(title)
            return None
        return _Held(title, words, entry)

    def _deleted(self, title: EntryTitle) -> bool:
        try:
            return self._journal.delete(str(title))
        except ConversationError as error:
            raise LinkError(str(error)) from error

    def _mended(
        self, entry_id: str, token_ids: Sequence[int], ttl_s: int | None, sink_ids: Sequence[int]
    ) -> Entry:
        """Writes an entry once more whose words are lost."""
        self._deleted(self._known[entry_id])
        title = self._title(entry_id, token_ids, sink_ids)
        return self._written(title, token_ids, ttl_s, sink_ids)

    def _title(
        self, entry_id: str, token_ids: Sequence[int], sink_ids: Sequence[int]
    ) -> EntryTitle:
        tag = namespace_tag(self._namespace())
        return EntryTitle(entry_id, self._digest(token_ids, sink_ids), len(token_ids), tag)

    def _written(
        self,
        title: EntryTitle,
        token_ids: Sequence[int],
        ttl_s: int | None,
        sink_ids: Sequence[int],
    ) -> Entry:
        """A durable entry under this name; where that fails the name is given back."""
        now_s = int(self._clock())
        entry = Entry(
            entry_id=title.entry_id,
            token_ids=tuple(token_ids),
            created_s=now_s,
            expires_s=None if ttl_s is None else now_s + ttl_s,
            sink_ids=tuple(sink_ids),
        )
        try:
            self._append(title, self._opened(title), entry_words(entry))
        except Exception:
            # A name without an entry would stay for good: no list has it, and nobody could end it.
            with suppress(LinkError):
                self._deleted(title)
            raise
        self._known[title.entry_id] = title
        return entry

    def _delete_unfinished(self) -> None:
        """Tries once more what a store that did not answer has left undone.

        What can be read by now is an entry after all, and somebody may have been given its id.
        """
        with suppress(LinkError):
            for title in tuple(self._unfinished):
                if self._look(title) is None:
                    self._deleted(title)
                self._unfinished.discard(title)

    def _opened(self, title: EntryTitle) -> Sequence[int]:
        """The words under a name, which is made where it is new."""
        try:
            return self._journal.open(str(title))
        except ConversationError as error:
            raise LinkError(str(error)) from error

    def _append(self, title: EntryTitle, words: Sequence[int], new_words: Sequence[int]) -> None:
        try:
            self._journal.append(str(title), words, new_words)
        except ConversationError as error:
            raise LinkError(str(error)) from error

    def _check_room(self, new_tokens: Sequence[int]) -> None:
        """Raises QuotaError where new entries do not fit.

        Names are counted first, which is fast. Where they are too many, what counts is what can be
        read: some may have expired, never have been finished, or be of another model. The
        last two are left alone: another process may be writing the one, and use the other.
        """
        try:
            self._quota.check(self._held_tokens(), new_tokens)
        except QuotaError:
            held = [len(entry.token_ids) for entry in self.list()]
            self._quota.check(held, new_tokens)

    def _held_tokens(self) -> Iterable[int]:
        for title in tuple(self._known.values()):
            if title in self._others:
                continue
            if title.token_count is not None:
                yield title.token_count
                continue
            try:
                entry = self._read(title)
            except LostEntryError:
                continue
            if entry is not None:
                yield len(entry.token_ids)

    def _digest(self, token_ids: Sequence[int], sink_ids: Sequence[int]) -> str:
        namespace = self._namespace()
        return entry_digest(token_ids, sink_ids, namespace=namespace, model=self._model)

    def _namespace(self) -> bytes:
        """Clients with another salt have the same names of sequences, but no states in common."""
        if not self._client.namespace:
            self._check_store()
        return self._client.namespace.encode()

    def _check_store(self) -> None:
        if not self._client.available():
            raise LinkError(
                "the store did not answer, so there is no context cache to find or make"
            )
