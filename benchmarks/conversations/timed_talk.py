"""Conversations as an engine sees them, which note when it took them up."""

import time
from collections.abc import Callable, Sequence

from engine_adapters.conversation.words import Told
from engine_adapters.runner.engine.conversing import Conversing
from engine_adapters.runner.engine.request import Completion
from engine_adapters.runner.engine.restoration import Restoration
from engine_adapters.runner.model.kv_cache import KvCache
from kvstored_contract.keys import Cut

LOOK_S = 0.05

Preloading = Callable[[Restoration], None]
"""Waits for what has come before the turn begins."""


class ForgottenTalk:
    """A conversation of which only its tokens are known: all is computed again (RE)."""

    sink_tokens = 0
    loaded_cuts = 0

    def __init__(self, token_ids: Sequence[int]) -> None:
        self.told = Told(tuple(token_ids))

    def queue(self, place: int | None) -> None:
        """As ``Conversing``."""

    def begin(
        self, cuts: Sequence[Cut], *, cache: KvCache, first_slot: int, new_tokens: int
    ) -> Restoration | None:
        """As ``Conversing``: nothing is stored."""
        del cuts, cache, first_slot, new_tokens
        return None

    def begin_saving(
        self, request_id: int, token_ids: Sequence[int], cuts: Sequence[Cut], stored_tokens: int
    ) -> None:
        """As ``Conversing``."""


class TimedTalk:
    """Another conversation; ``begun_s`` is when the engine took it up, by ``perf_counter``.

    With ``preload`` it is taken up when that returns, as behind a job that ran until then.
    """

    def __init__(self, inner: Conversing, *, preload: Preloading | None = None) -> None:
        self._inner = inner
        self._preload = preload
        self.added_s = 0.0
        self.begun_s = 0.0

    @property
    def told(self) -> Told:
        """As ``Conversing``."""
        return self._inner.told

    @property
    def sink_tokens(self) -> int:
        """As ``Conversing``."""
        return self._inner.sink_tokens

    @property
    def loaded_cuts(self) -> int:
        """As ``Conversing``."""
        return self._inner.loaded_cuts

    def queue(self, place: int | None) -> None:
        """As ``Conversing``."""
        self._inner.queue(place)

    def begin(
        self, cuts: Sequence[Cut], *, cache: KvCache, first_slot: int, new_tokens: int
    ) -> Restoration | None:
        """As ``Conversing``."""
        self.begun_s = time.perf_counter()
        restoration = self._inner.begin(
            cuts, cache=cache, first_slot=first_slot, new_tokens=new_tokens
        )
        if self._preload is not None and restoration is not None:
            self._preload(restoration)
            self.begun_s = time.perf_counter()
        return restoration

    def begin_saving(
        self, request_id: int, token_ids: Sequence[int], cuts: Sequence[Cut], stored_tokens: int
    ) -> None:
        """As ``Conversing``."""
        self._inner.begin_saving(request_id, token_ids, cuts, stored_tokens)

    def ttft_s(self, completion: Completion) -> float:
        """From when it was taken up to its first token."""
        return self.added_s + completion.ttft_s - self.begun_s


def layers_come(count: int | None) -> Preloading:
    """Until so many layers of a window are there; None: as many as its read buffer has."""

    def wait(restoration: Restoration) -> None:
        while not restoration.state.is_over:
            restoration.advance(0)
            history = restoration.state.open_layers
            if history is not None:
                wanted = history.buffer_layers if count is None else count
                if history.layers >= wanted:
                    return
            if restoration.state.is_waiting:
                restoration.wait(LOOK_S)

    return wait
