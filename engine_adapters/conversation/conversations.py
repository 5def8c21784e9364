"""Conversations by name: what they say, what is stored of them, and how they go on."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from engine_adapters.conversation.errors import ConversationError
from engine_adapters.conversation.history import make_cut
from engine_adapters.conversation.journal import NAME_SUFFIX, Journal, answered
from engine_adapters.conversation.usable_states import UsableStates, usable_states
from engine_adapters.conversation.words import ABANDONED, Told, told_by, turn_words
from kvstored_client import Client, Lease, Rotary, StateKind, StateLayout
from kvstored_contract.keys import Cut, history_keys
from kvstored_contract.limits import SEQUENCE_NAME_BYTES_MAX

NAME_BYTES_MAX = SEQUENCE_NAME_BYTES_MAX - len(NAME_SUFFIX)
"""Of a conversation: its words have a sequence of their own."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation as its last finished turn left it. Immutable.

    ``words`` are all that the store has of what it says, unfinished turns included.
    """

    name: str
    words: tuple[int, ...]
    told: Told

    @property
    def token_ids(self) -> tuple[int, ...]:
        """All tokens that it ever had, dropped ones included."""
        return self.told.token_ids

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """Where it lost tokens, in order."""
        return self.told.cuts

    @property
    def computed_tokens(self) -> int:
        """Tokens whose states an engine had at its end: the last one was only sampled."""
        return max(0, len(self.token_ids) - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredStates:
    """States of a conversation in one layout, kept until ``lease`` is released.

    ``keys`` are those of all its chunks; the last one has fewer tokens where ``stop``, the number
    of the token after it, is no multiple of the layout's. ``usable`` says which rows to load.
    """

    keys: tuple[bytes, ...]
    stop: int
    usable: UsableStates
    lease: Lease | None = None


class Conversations:
    """The conversations of a namespace with one model. Thread-safe where its client is.

    The states of a conversation are in the sequence of its name, its token ids and cuts in one
    beside it (``Journal``). At the end of a turn the states are flushed first, the token ids then:
    a turn has happened when its token ids are durable. What an engine that died has left of
    states beyond that is not used, and what is missing of them is computed again. Leave
    sequences of these names to conversations: one of other states is replaced. Raises
    ConversationError where the token ids cannot be read or made durable.
    """

    def __init__(self, client: Client, model: str) -> None:
        """``model`` is the fingerprint in the layouts of its states."""
        self._client = client
        self._journal = Journal(client, model)

    def open(self, name: str) -> Conversation:
        """The conversation of this name; an empty one where there is none yet. Makes nothing."""
        if not name or name.endswith(NAME_SUFFIX):
            raise ConversationError(
                f"a conversation has a name that does not end with {NAME_SUFFIX!r}, not {name!r}"
            )
        if len(name.encode()) > NAME_BYTES_MAX:
            raise ConversationError(
                f"the name of a conversation has {len(name.encode())} bytes; it may have "
                f"{NAME_BYTES_MAX}"
            )
        words = self._journal.read(name) or ()
        return Conversation(name, words, told_by(words))

    def end_turn(
        self, conversation: Conversation, token_ids: Sequence[int], cuts: Sequence[Cut] = ()
    ) -> Conversation:
        """Adds a turn: the tokens of its prompt and its answer, and the cuts made meanwhile.

        Flush the states before. The turn is durable when it returns; where it raises, the turn
        may or may not have happened, and opening the conversation again tells.
        """
        new_words = turn_words(token_ids, cuts)
        if conversation.told.has_rest:
            new_words = [ABANDONED, *new_words]
        name, is_first = conversation.name, not conversation.words
        is_ours = False
        try:
            if is_first:
                # Not before: a name that is made stays until somebody deletes it.
                is_ours = self._journal.make(name)
            self._journal.append(name, conversation.words, new_words)
        except ConversationError:
            if is_first:
                self._forget_first(name, is_ours=is_ours)
            raise
        words = (*conversation.words, *new_words)
        return Conversation(name, words, told_by(words))

    def _forget_first(self, name: str, *, is_ours: bool) -> None:
        """Forgets the names that a first turn has left which did not happen.

        The name of the words only if this turn has made it and nobody has used it, that of the
        states only if there is none of words: else the conversation may be somebody else's.
        """
        with suppress(ConversationError):
            if is_ours and self._journal.is_empty(name):
                self._journal.delete(name)
            if not self._journal.is_there(name):
                self._client.sequences.delete(name)

    def truncate(self, conversation: Conversation, kept: Iterable[range]) -> Conversation:
        """Cuts a conversation between two turns: only the positions ``kept`` stay.

        They ascend and lie apart, among the positions of the tokens that are computed: the last
        token has none yet and stays.
        """
        cut = make_cut(conversation.cuts, conversation.computed_tokens, kept)
        return self.end_turn(conversation, (), (cut,))

    def fork(self, name: str, new_name: str) -> Conversation:
        """Copies a conversation under a new name; from then on both go on by themselves.

        Raises ConversationError for one without a finished turn: there is nothing to copy.
        """
        if self._journal.read(name) is None:
            raise ConversationError(
                f"conversation {name!r} could not be forked: it has no turn yet"
            )
        copied = None
        if self._client.sequences.get(name) is not None:
            copied = self._client.sequences.fork(name, new_name)
        try:
            self._journal.fork(name, new_name)
        except ConversationError:
            if copied is not None:
                self._client.sequences.delete(new_name)
            raise
        return self.open(new_name)

    def delete(self, name: str) -> bool:
        """Forgets a conversation; False when there was none. Raises ConversationError."""
        # Where only the words went, nobody would find the name of the states again.
        answered(
            self._client,
            "sequence_delete",
            lambda: self._client.sequences.delete(name),
            f"to forget the states of conversation {name!r}",
        )
        return self._journal.delete(name)

    def names(self) -> list[str]:
        """Names of all conversations of the namespace."""
        return self._journal.names()

    def stored(
        self, conversation: Conversation, layout: StateLayout, *, lease_ms: int
    ) -> StoredStates:
        """Which states of it can be loaded; they stay for ``lease_ms``, or until released.

        Of states and token ids the shorter count. Raises ConversationError for a conversation
        with cuts in a layout whose states cannot move.
        """
        if conversation.cuts:
            check_movable(layout)
        stop = self._stored_stop(conversation, layout)
        keys = history_keys(
            namespace=self._client.namespace,
            layout=layout,
            token_ids=conversation.token_ids[:stop],
            cuts=conversation.cuts,
        )
        lease = self._client.pin(layout, keys, lease_ms=lease_ms) if keys else None
        is_stored = (False,) * len(keys) if lease is None else lease.is_pinned
        usable = usable_states(
            conversation.cuts, is_stored, stop=stop, chunk_tokens=layout.chunk_tokens
        )
        return StoredStates(keys=tuple(keys), stop=stop, usable=usable, lease=lease)

    def _stored_stop(self, conversation: Conversation, layout: StateLayout) -> int:
        """The end of the last chunk that may be stored: that of the flushed tail, if it is ours."""
        chunk_tokens = layout.chunk_tokens
        whole = conversation.computed_tokens // chunk_tokens * chunk_tokens
        info = self._client.sequences.get(conversation.name)
        if info is None or info.layout_id != layout.layout_id or not info.tail_key:
            return whole
        stop = len(info.keys) * chunk_tokens + info.durable_tail_tokens
        if not whole < stop <= conversation.computed_tokens:
            return whole
        keys = history_keys(
            namespace=self._client.namespace,
            layout=layout,
            token_ids=conversation.token_ids[:stop],
            cuts=conversation.cuts,
        )
        return stop if keys[-1] == info.tail_key else whole


def check_movable(layout: StateLayout) -> None:
    """Raises ConversationError for states that fit no other position after a cut."""
    if layout.rotary is not Rotary.UNROTATED:
        raise ConversationError(
            "this conversation cannot be cut, because its keys hold the positions at which they "
            "were computed (learned absolute positions, or keys stored rotated)"
        )
    check_stored(layout)


def check_stored(layout: StateLayout) -> None:
    """Raises ConversationError for a layout that leaves layers to be recomputed."""
    recomputed = sum(layer.kind is StateKind.NONE for layer in layout.layers)
    if recomputed:
        raise ConversationError(
            f"a conversation cannot have a layout that recomputes {recomputed} layers, because a "
            "cut takes the tokens for that: store all layers, as the modes kv and hidden do"
        )
