"""Cuts histories that lie in the cache: what stays moves to the front and is rotated back."""

from collections.abc import Iterable

import torch

from engine_adapters.conversation.errors import ConversationError
from engine_adapters.conversation.history import overflow_cut
from engine_adapters.runner.engine.request import Request
from engine_adapters.runner.model.kv_cache import KvCache
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.rotary import Angles, rotate


def make_due_cuts(request: Request, model: Model, cache: KvCache) -> None:
    """Makes the cuts whose turn has come, and one more where the window has no room left.

    For a request that continues a conversation. Raises ConversationError for a model whose
    positions are learned, for a cut of a window that its slots cannot hold, and where nothing
    can be dropped.
    """
    while (cut := request.cuts.next) is not None and cut.first_token == request.computed_count:
        _make(request, model, cache)
    window_tokens = request.slots.count
    count = request.computed_count - request.cuts.dropped_count
    if cut is not None:
        if cut.first_token - request.cuts.dropped_count > window_tokens:
            raise ConversationError(
                f"a window of {cut.first_token - request.cuts.dropped_count} tokens, as this "
                f"conversation once had, does not fit {window_tokens} slots of the cache"
            )
    elif count == window_tokens and request.cuts.conversation is not None:
        made = overflow_cut(
            request.cuts.cuts,
            request.computed_count,
            new_count=1,
            window_tokens=window_tokens,
            sink_tokens=request.cuts.conversation.sink_tokens,
        )
        assert made is not None
        request.cuts.cuts.append(made)
        _make(request, model, cache)


def _make(request: Request, model: Model, cache: KvCache) -> None:
    cut = request.cuts.next
    assert cut is not None
    cut_cache(model, cache, first_slot=request.slots.first, kept=cut.kept)
    request.cuts.made_count += 1


@torch.inference_mode()
def cut_cache(model: Model, cache: KvCache, *, first_slot: int, kept: Iterable[range]) -> None:
    """Leaves the positions ``kept``, ascending and apart, of a history from ``first_slot`` on.

    Raises ConversationError for a model without rotary embedding.
    """
    if model.rotary is None:
        raise ConversationError(
            "this model learned absolute positions, so its conversations cannot be cut: "
            "start a new one, or give it fewer tokens"
        )
    position = 0
    for positions in kept:
        moved = positions.start - position
        if moved:
            back = model.rotary.between(moved, moved + 1)
            back = Angles(back.cosines, -back.sines)
            for layer in range(len(cache.keys)):
                old = slice(first_slot + positions.start, first_slot + positions.stop)
                # Both are copies: the old slots and the new ones may overlap.
                keys = rotate(cache.keys[layer, old], back)
                values = cache.values[layer, old].clone()
                cache.write(layer, first_slot + position, keys, values)
        position += len(positions)
