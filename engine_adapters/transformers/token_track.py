"""Which tokens the states of a cache are of, as the model's own calls say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

CACHE_ARGUMENTS = ("cache", "past_key_values")
"""What models call a cache: since some release of transformers 5, and before."""

KNOWN_ARGUMENTS = frozenset(
    {
        *CACHE_ARGUMENTS,
        "attention_mask",
        "cache_position",
        "input_ids",
        "labels",
        "logits_to_keep",
        "output_attentions",
        "output_hidden_states",
        "position_ids",
        "return_dict",
        "use_cache",
    }
)
"""Arguments of a model that the states do not depend on, or that are looked at here."""


@dataclass(frozen=True, slots=True)
class Fed:
    """Tokens of one call, and how many states there were before; nothing is waited for."""

    first: int
    token_ids: Tensor
    is_plain: Tensor
    """Whether every token was seen, at its place among all tokens: one bool."""


def fed_of(
    positional: Sequence[object], named: Mapping[str, object], *, first: int, is_training: bool
) -> Fed | None:
    """What a call of a model fed; None where the states depend on more than tokens in a row."""
    ids = positional[0] if positional else named.get("input_ids")
    others = {name for name, value in named.items() if value is not None} - KNOWN_ARGUMENTS
    is_one = isinstance(ids, Tensor) and ids.dim() == 2 and ids.shape[0] == 1
    if others or len(positional) > 1 or is_training or not is_one:
        return None
    assert isinstance(ids, Tensor)
    count = ids.shape[1]
    is_plain = torch.ones((), dtype=torch.bool, device=ids.device)
    mask, places = named.get("attention_mask"), named.get("position_ids")
    if mask is not None:
        if not isinstance(mask, Tensor) or mask.shape != (1, first + count):
            return None
        is_plain = is_plain & mask.bool().all().to(ids.device)
    if places is not None:
        if not isinstance(places, Tensor) or places.shape != (1, count):
            return None
        expected = torch.arange(first, first + count, device=places.device)
        is_plain = is_plain & (places[0] == expected).all().to(ids.device)
    return Fed(first, ids[0], is_plain)


def begins_at_first_token(ids: Tensor, named: Mapping[str, object]) -> bool:
    """Whether a call feeds the sequence from its first token on; waits for the device."""
    mask, places = named.get("attention_mask"), named.get("position_ids")
    if isinstance(places, Tensor):
        return bool((places[..., 0] == 0).all())
    return isinstance(mask, Tensor) and mask.dim() == 2 and mask.shape[1] == ids.shape[1]


@dataclass(slots=True)
class TokenTrack:
    """Token ids of the states of one cache. Not thread-safe, as the cache is not."""

    _known: list[int] = field(default_factory=list)
    _fed: list[Fed] = field(default_factory=list)
    _is_lost: bool = False

    def begin(self, token_ids: Sequence[int]) -> None:
        """The states are those of these tokens, whatever was before."""
        self._known, self._fed, self._is_lost = list(token_ids), [], False

    def add(self, fed: Fed | None) -> None:
        """A call added states; None: of what, nobody knows."""
        if fed is None:
            self._is_lost = True
        elif not self._is_lost:
            self._fed.append(fed)

    def token_ids(self, state_count: int) -> list[int]:
        """Ids of the first ``state_count`` tokens; none of them where they are not all known.

        Waits for the device that computes. A cache that was cut is shorter than what was fed.
        """
        for fed in self._fed:
            if self._is_lost or fed.first > len(self._known) or not fed.is_plain:
                self._is_lost = True
                break
            self._known[fed.first :] = fed.token_ids.tolist()
        self._fed.clear()
        if self._is_lost or state_count > len(self._known):
            return []
        return self._known[:state_count]
