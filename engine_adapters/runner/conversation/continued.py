"""A conversation as a request of the engine continues it."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from engine_adapters.conversation.conversations import (
    Conversation,
    Conversations,
    StoredStates,
    check_stored,
)
from engine_adapters.conversation.usable_states import UsableStates
from engine_adapters.conversation.words import Told
from engine_adapters.hints.queue_teller import QueueTeller
from engine_adapters.restore import Rates
from engine_adapters.runner.conversation.stored_window import (
    PieceFinder,
    StoredWindow,
    WindowPlace,
)
from engine_adapters.runner.conversation.window_restorer import WindowRestorer
from engine_adapters.runner.engine.restoration import Restoration
from engine_adapters.runner.model.kv_cache import KvCache
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.restore.restore_options import RestoreOptions
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Client, QueueEntry
from kvstored_contract.keys import Cut

DEFAULTS = RestoreOptions()


class ConversationStore:
    """What all conversations of an engine share: the client, the saver, who loads their windows.

    Raises ConversationError for a layout that recomputes layers: states of a cut history cannot
    be recomputed from the tokens that are left. One thread only.
    """

    def __init__(
        self,
        client: Client,
        state_format: StateFormat,
        model: Model,
        *,
        saver: StateSaver | None = None,
        options: RestoreOptions = DEFAULTS,
        rates: Rates | None = None,
        tells_queue: bool = True,
    ) -> None:
        """``options`` as a restorer has them, of which the way and the order do not count.

        ``rates`` are those of the engine's restorer, if there is one. It ``tells_queue`` which
        conversations wait, unless it is for comparison.
        """
        check_stored(state_format.layout)
        self.client = client
        self.state_format = state_format
        self.saver = saver
        self.options = options
        self.conversations = Conversations(client, state_format.layout.model)
        self.teller = QueueTeller(client)
        self.tells_queue = tells_queue
        self.windows = WindowRestorer(
            client,
            state_format,
            model,
            options,
            rates or Rates(None, token_budget=options.step_tokens),
        )

    def open(self, name: str, *, sink_tokens: int = 0) -> "ContinuedConversation":
        """The conversation of this name for one request; waits for the store."""
        return ContinuedConversation(self, self.conversations.open(name), sink_tokens=sink_tokens)

    def close(self) -> None:
        """Ends all restorations and waits until they hold nothing any more."""
        self.teller.close()
        self.windows.close()


class ContinuedConversation:
    """As ``Conversing``; for one request."""

    def __init__(
        self, store: ConversationStore, conversation: Conversation, *, sink_tokens: int
    ) -> None:
        self.conversation = conversation
        self.sink_tokens = sink_tokens
        self._store = store
        self._window: StoredWindow | None = None
        self._found: PieceFinder | None = None

    @property
    def told(self) -> Told:
        """As ``Conversing``."""
        return self.conversation.told

    @property
    def usable(self) -> UsableStates:
        """What of the stored states is in the cache, once the restoration is over."""
        return UsableStates() if self._window is None else self._window.usable

    @property
    def loaded_cuts(self) -> int:
        """As ``Conversing``."""
        return self.usable.cut_count

    def queue(self, place: int | None) -> None:
        """As ``Conversing``."""
        if place is None:
            self._store.teller.leave(self.conversation.name)
        elif self.conversation.computed_tokens and self._store.tells_queue:
            self._store.teller.enter(QueueEntry(name=self.conversation.name, place=place))

    def begin(
        self, cuts: Sequence[Cut], *, cache: KvCache, first_slot: int, new_tokens: int
    ) -> Restoration | None:
        """As ``Conversing``."""
        if not self.conversation.computed_tokens:
            return None
        store = self._store
        told = Told(self.conversation.token_ids, tuple(cuts))
        finder = self._found = PieceFinder(
            partial(self._stored, replace(self.conversation, told=told)),
            chunk_tokens=store.state_format.layout.chunk_tokens,
        )
        restoration, self._window = store.windows.begin(
            finder,
            WindowPlace(cuts=told.cuts, cache=cache, first_slot=first_slot),
            told_tokens=len(told.token_ids),
            new_tokens=new_tokens,
        )
        return restoration

    def begin_saving(
        self, request_id: int, token_ids: Sequence[int], cuts: Sequence[Cut], stored_tokens: int
    ) -> None:
        """As ``Conversing``."""
        if self._store.saver is not None:
            found = None if self._found is None else self._found.found
            self._store.saver.begin_conversation(
                request_id,
                self.conversation.name,
                token_ids,
                cuts,
                stored_tokens,
                is_tail_stored=found is not None and stored_tokens == found.stop,
            )

    def end_turn(self, token_ids: Sequence[int], cuts: Sequence[Cut]) -> Conversation:
        """Makes the turn durable: the states first, then its token ids and cuts.

        ``token_ids`` are all of the conversation now, ``cuts`` those of this turn. Waits for the
        store; raises ConversationError where the token ids could not be saved.
        """
        if self._store.saver is not None:
            self._store.saver.finish()
        new_tokens = token_ids[len(self.conversation.token_ids) :]
        return self._store.conversations.end_turn(self.conversation, new_tokens, cuts)

    def abandon(self) -> None:
        """Forgets what a turn that does not end has left. Waits for the store, on any thread.

        Of a first turn that is a sequence of states, and perhaps nobody ever asks for its name
        again. Of a later one the next turn makes the best, once all of it is there.
        """
        if self._store.saver is not None:
            # Else it might make the sequence after this, or add to it after the next turn's look.
            self._store.saver.finish()
        if self.conversation.words:
            return
        self._store.client.sequences.delete(self.conversation.name)

    def _stored(self, conversation: Conversation) -> StoredStates:
        store = self._store
        return store.conversations.stored(
            conversation, store.state_format.layout, lease_ms=int(store.options.timeout_s * 1000)
        )
