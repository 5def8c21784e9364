"""A window of a history in a cache, without engine and store, and three ways to cut it."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from benchmarks.quality.way import Way
from engine_adapters.runner.engine.cache_cuts import cut_cache
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.step import NullSink, Segment
from kvstored_contract.keys import Cut


class BareWindow:
    """Tokens and their states from slot 0 on. One thread only."""

    def __init__(self, model: Model, *, window_tokens: int) -> None:
        self._model = model
        self._cache = model.make_cache(window_tokens)
        self._token_ids: list[int] = []

    @property
    def count(self) -> int:
        """Tokens in the window."""
        return len(self._token_ids)

    def extend(self, token_ids: Sequence[int]) -> Tensor:
        """Computes tokens after those that are there; logits [tokens, vocab_size], float32."""
        segment = Segment(
            request_id=0,
            first_row=0,
            token_count=len(token_ids),
            first_position=self.count,
            first_slot=0,
        )
        self._token_ids += token_ids
        return self._model.forward(
            token_ids,
            [segment],
            cache=self._cache,
            sink=NullSink(),
            logit_rows=range(len(token_ids)),
        )

    def cut(self, kept: Sequence[range], way: Way) -> None:
        """Leaves the positions ``kept``, ascending and apart."""
        left = [self._token_ids[position] for positions in kept for position in positions]
        match way:
            case Way.AS:
                cut_cache(self._model, self._cache, first_slot=0, kept=kept)
            case Way.TT:
                self._token_ids = []
                self.extend(left)
            case Way.NKVT:
                self._move(kept)
        self._token_ids = left

    @torch.inference_mode()
    def _move(self, kept: Iterable[range]) -> None:
        """Moves states to the front as they are: their keys stay rotated at the old positions."""
        slots = torch.tensor([position for positions in kept for position in positions])
        for states in (self._cache.keys, self._cache.values):
            states[:, : len(slots)] = states[:, slots].clone()


def logits_of(
    model: Model, script: Sequence[int], cuts: Iterable[Cut], way: Way, *, window_tokens: int
) -> Tensor:
    """What follows each token of ``script`` but the last, [tokens - 1, vocab_size], float32.

    ``cuts`` are those of a conversation that said ``script``, here made in a cache of its own.
    """
    window = BareWindow(model, window_tokens=window_tokens)
    logits = []
    first = 0
    for cut in (*cuts, None):
        stop = len(script) - 1 if cut is None else cut.first_token
        logits.append(window.extend(script[first:stop]))
        if cut is not None:
            window.cut(cut.kept, way)
        first = stop
    return torch.cat(logits)
