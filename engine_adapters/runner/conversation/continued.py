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
from engine_adapters.conversation.history import dropped
from engine_adapters.conversation.words import Told
from engine_adapters.hints.queue_teller import QueueTeller
from engine_adapters.reading.arena_share import ArenaShare
from engine_adapters.reading.read_options import ReadOptions
from engine_adapters.reading.span_reader import SpanReader
from engine_adapters.restore import Rates
from engine_adapters.runner.conversation.piece_restoration import (
    PieceFinder,
    PieceRestoration,
    Window,
)
from engine_adapters.runner.model.kv_cache import KvCache
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.restore.layer_loader import LayerLoader
from engine_adapters.runner.restore.loading_limit import LoadingLimit
from engine_adapters.runner.restore.restore_options import RestoreOptions
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Client, Order, QueueEntry
from kvstored_contract.keys import Cut

DEFAULTS = RestoreOptions()


class ConversationStore:
    """What all conversations of an engine share: the client, the loader, a share of the arena.

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
    ) -> None:
        """``options`` as a restorer has them, of which the way and the order do not count.

        ``rates`` are those of the engine's restorer, if there is one.
        """
        check_stored(state_format.layout)
        self.client = client
        self.state_format = state_format
        self.saver = saver
        self.options = options
        self.loader = LayerLoader(model, state_format)
        self.conversations = Conversations(client, state_format.layout.model)
        self.share = ArenaShare.of_client(client)
        self.teller = QueueTeller(client)
        self._rates = rates or Rates(None, token_budget=options.step_tokens)
        self._is_on_cpu = model.device.type == "cpu"
        self.read_options = ReadOptions(
            order=Order.LAYER_FIRST,
            span_chunks=options.span_chunks(state_format),
            first_chunks=options.first_chunks(state_format),
        )

    def limit(self, token_count: int, *, window_tokens: int) -> LoadingLimit:
        """Of restoring a window, where all of ``token_count`` tokens would be computed again.

        None of them was computed after more than a window. Cuts may have left nothing of it.
        """
        window_tokens = max(1, window_tokens)
        options = replace(self.options, layer_rates=None)
        if options.compute is not None:
            options = replace(options, compute=options.compute.scaled(token_count / window_tokens))
        return LoadingLimit.of_options(
            self.state_format,
            window_tokens,
            options,
            rates=self._rates,
            is_on_cpu=self._is_on_cpu,
        )

    def open(self, name: str, *, sink_tokens: int = 0) -> "ContinuedConversation":
        """The conversation of this name for one request; waits for the store."""
        return ContinuedConversation(self, self.conversations.open(name), sink_tokens=sink_tokens)

    def close(self) -> None:
        """Ends all restorations and waits until they hold nothing any more."""
        self.teller.close()
        self.share.close()


class ContinuedConversation:
    """As ``Conversing``; for one request."""

    def __init__(
        self, store: ConversationStore, conversation: Conversation, *, sink_tokens: int
    ) -> None:
        self.conversation = conversation
        self.sink_tokens = sink_tokens
        self._store = store
        self._restoration: PieceRestoration | None = None
        self._found: PieceFinder | None = None

    @property
    def token_ids(self) -> Sequence[int]:
        """As ``Conversing``."""
        return self.conversation.token_ids

    @property
    def cuts(self) -> Sequence[Cut]:
        """As ``Conversing``."""
        return self.conversation.cuts

    @property
    def loaded_cuts(self) -> int:
        """As ``Conversing``."""
        return 0 if self._restoration is None else self._restoration.usable.cut_count

    def enter_queue(self, place: int) -> None:
        """As ``Conversing``."""
        if self.conversation.computed_tokens:
            self._store.teller.enter(QueueEntry(name=self.conversation.name, place=place))

    def leave_queue(self) -> None:
        """As ``Conversing``."""
        self._store.teller.leave(self.conversation.name)

    def begin(
        self, cuts: Sequence[Cut], *, cache: KvCache, first_slot: int
    ) -> PieceRestoration | None:
        """As ``Conversing``."""
        if not self.conversation.computed_tokens:
            return None
        store, timeout_s = self._store, self._store.options.timeout_s
        told = Told(self.conversation.token_ids, tuple(cuts))
        finder = self._found = PieceFinder(
            partial(self._stored, replace(self.conversation, told=told)),
            chunk_tokens=store.state_format.layout.chunk_tokens,
        )
        reader = SpanReader(
            store.client,
            store.state_format,
            finder,
            store.read_options,
            remaining_s=lambda: timeout_s,
            share=store.share,
        )
        store.share.begin(reader.start(room_timeout_s=timeout_s))
        token_count = len(told.token_ids)
        self._restoration = PieceRestoration(
            reader,
            finder,
            store.loader,
            store.state_format,
            Window(cuts=told.cuts, cache=cache, first_slot=first_slot),
            store.limit(token_count, window_tokens=token_count - dropped(told.cuts)),
            store.options,
        )
        return self._restoration

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

    def _stored(self, conversation: Conversation) -> StoredStates:
        store = self._store
        return store.conversations.stored(
            conversation, store.state_format.layout, lease_ms=int(store.options.timeout_s * 1000)
        )
