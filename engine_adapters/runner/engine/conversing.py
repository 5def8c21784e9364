"""What the engine asks of a conversation that a request continues."""

from collections.abc import Sequence
from typing import Protocol

from engine_adapters.conversation.errors import ConversationError
from engine_adapters.conversation.history import overflow_cut
from engine_adapters.conversation.words import Told
from engine_adapters.runner.engine.restoration import Restoration
from engine_adapters.runner.model.errors import RequestError
from engine_adapters.runner.model.kv_cache import KvCache
from engine_adapters.runner.model.model_config import ModelConfig
from kvstored_contract.keys import Cut


class Conversing(Protocol):
    """A conversation with its states in a store. The engine's thread only; nothing waits."""

    @property
    def told(self) -> Told:
        """Its tokens and cuts before this turn, those that cuts have dropped included."""

    @property
    def sink_tokens(self) -> int:
        """Positions at the front that stay when the window overflows."""

    @property
    def loaded_cuts(self) -> int:
        """Cuts that are made in what the restoration has brought, once it is over."""

    def queue(self, place: int | None) -> None:
        """It waits, and the smallest place runs first; None: no more. Returns at once."""

    def begin(
        self, cuts: Sequence[Cut], *, cache: KvCache, first_slot: int, new_tokens: int
    ) -> Restoration | None:
        """Begins to load what ``cuts`` have left; None where nothing can be stored.

        ``new_tokens`` come after it. Positions of this restoration are numbers among all tokens.
        """

    def begin_saving(
        self, request_id: int, token_ids: Sequence[int], cuts: Sequence[Cut], stored_tokens: int
    ) -> None:
        """Announces the request to the sink; both lists are live."""


def cuts_before(
    conversation: Conversing, new_tokens: int, config: ModelConfig, *, slot_count: int
) -> list[Cut]:
    """The cuts of a conversation, with the one that makes room for a new turn if it needs one.

    Raises RequestError for a turn that never fits, for a model whose histories cannot be cut, and
    where no cut could ever make room.
    """
    window_tokens = min(config.position_count, slot_count)
    if conversation.sink_tokens >= window_tokens:
        raise RequestError(
            f"the first {conversation.sink_tokens} tokens of a conversation are always kept, and "
            f"its window has {window_tokens}: nothing could be dropped when it is full; set "
            "sink_tokens lower"
        )
    cuts = list(conversation.told.cuts)
    told = len(conversation.told.token_ids)
    # The last token was only sampled: it is computed with those of the new turn.
    computed = max(0, told - 1)
    try:
        cut = overflow_cut(
            cuts,
            computed,
            new_count=told - computed + new_tokens,
            window_tokens=window_tokens,
            sink_tokens=conversation.sink_tokens,
        )
    except ConversationError as error:
        raise RequestError(str(error)) from error
    if cut is not None:
        cuts.append(cut)
    if cuts and config.rotary is None:
        raise RequestError(
            "this conversation exceeds the window and cannot be cut, because the model learned "
            "absolute positions"
        )
    return cuts
