"""Prompts whose states one namespace of the store has."""

from collections.abc import Sequence

from engine_adapters.conversation.words import Told
from engine_adapters.runner.engine.restoration import Restoration, Restorer
from engine_adapters.runner.model.kv_cache import KvCache
from engine_adapters.runner.save.saver import StateSaver
from kvstored_contract.keys import Cut


class StoredPrompt:
    """As ``Conversing``: nothing came before the prompt.

    An engine has one restorer, but each namespace has its own. Give it to prompts only that fit
    the cache with their answers: of those nothing is ever cut.
    """

    told = Told()
    sink_tokens = 0
    loaded_cuts = 0

    def __init__(
        self,
        prompt: Sequence[int],
        restorer: Restorer,
        saver: StateSaver,
        *,
        entry_name: str | None = None,
    ) -> None:
        """With an ``entry_name`` the last, incomplete chunk is saved as well.

        No other request that is being saved has that name.
        """
        self._prompt = prompt
        self._restorer = restorer
        self._saver = saver
        self._entry_name = entry_name

    def queue(self, place: int | None) -> None:
        """As ``Conversing``; nobody follows a single prompt."""

    def begin(
        self, cuts: Sequence[Cut], *, cache: KvCache, first_slot: int, new_tokens: int
    ) -> Restoration | None:
        """As ``Conversing``."""
        del cuts, new_tokens
        return self._restorer.begin(self._prompt, cache=cache, first_slot=first_slot)

    def begin_saving(
        self, request_id: int, token_ids: Sequence[int], cuts: Sequence[Cut], stored_tokens: int
    ) -> None:
        """As ``Conversing``."""
        if self._entry_name is None:
            self._saver.begin_request(request_id, token_ids, stored_tokens)
        else:
            self._saver.begin_conversation(
                request_id,
                self._entry_name,
                token_ids,
                cuts,
                stored_tokens,
                is_tail_stored=False,
                keeps_tail=True,
            )
