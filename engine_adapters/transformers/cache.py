"""A cache for ``generate`` that begins with the longest stored prefix of a prompt."""

import logging
import os
import time
from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from typing import Any, Self

from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel

from engine_adapters.transformers import support
from engine_adapters.transformers.chunk_states import ChunkStates
from engine_adapters.transformers.identity import Versions, fingerprint, versions_of
from engine_adapters.transformers.stored_prefix import StoredPrefix
from engine_adapters.transformers.token_track import (
    CACHE_ARGUMENTS,
    TokenTrack,
    begins_at_first_token,
    fed_of,
)
from kvstored_client import Client

LOGGER = logging.getLogger(__name__)

CHUNK_TOKENS = 64
LOAD_TIMEOUT_S = 10.0


class KvstoredCache(DynamicCache):
    """States of one prompt, of which the store already had the first ``restored_tokens``.

        cache = KvstoredCache(model, **inputs)
        output = model.generate(**inputs, past_key_values=cache)
        cache.save()

    ``inputs`` is what the tokenizer returned: one sequence, without padding. ``client``: default
    one for the process, with the socket of KVSTORED_SOCKET. ``weights`` names the model's weights,
    a revision say, so that they are not hashed. ``load_timeout_s``: how long a slow store is
    waited for, with its look-up. A daemon that does not answer for a second is left alone for some.

    Whatever fails in the store is a miss: then this is a ``DynamicCache``. So it is of a model or
    of inputs whose states may depend on more than the tokens; ``refusal`` says why, and a warning
    does. It follows the model's own calls: only states of tokens that it saw there are stored. Not
    thread-safe.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        input_ids: Tensor,
        *,
        client: Client | None = None,
        weights: str = "",
        chunk_tokens: int = CHUNK_TOKENS,
        load_timeout_s: float = LOAD_TIMEOUT_S,
        **inputs: object,
    ) -> None:
        super().__init__(config=getattr(model, "config", None))
        self.restored_tokens = 0
        self.refusal = support.refusal_of(model) or _inputs_refusal(input_ids, inputs)
        self._track = TokenTrack()
        self._prefix: StoredPrefix | None = None
        self._model = model
        self._versions: Versions = ()
        if self.refusal:
            LOGGER.warning("kvstored saves and restores nothing: %s", self.refusal)
            return
        try:
            self._prefix = _open(
                model, client or _own_client(os.getpid()), weights=weights, tokens=chunk_tokens
            )
            self._versions = versions_of(model)
            _follow(model)
            self._restore(input_ids, load_timeout_s)
        except Exception:
            LOGGER.exception("kvstored restores nothing")
            self.forget()

    def save(self, *, is_durable: bool = False) -> int:
        """Stores all complete chunks that were not restored; how many of them are stored now.

        Returns when the chunks are readable, with ``is_durable`` when they survive a power loss.
        0 where the states are not those of the tokens that the model was seen to be given.
        """
        prefix = self._prefix
        if prefix is None or self.refusal:
            return 0
        try:
            states = [(layer.keys, layer.values) for layer in self.layers if layer.is_initialized]
            token_ids = self._track.token_ids(self.get_seq_length())
            if (
                not token_ids
                or not prefix.format.is_shape_of(states)
                or versions_of(self._model) != self._versions
            ):
                return 0
            first = self.restored_tokens // prefix.format.layout.chunk_tokens
            return prefix.save(states, token_ids, first_chunk=first, is_durable=is_durable)
        except Exception:
            LOGGER.exception("kvstored saves nothing")
            return 0

    def forget(self) -> None:
        """Drops all states, restored ones included."""
        self.reset()
        self.restored_tokens = 0
        self._track.begin(())

    def follow(
        self, module: nn.Module, positional: tuple[object, ...], named: Mapping[str, object]
    ) -> None:
        """Is given each call of the model with this cache, before it computes."""
        if not self.refusal and (why := support.hook_refusal(module)):
            self.refusal = why
            LOGGER.warning("kvstored saves nothing: %s", why)
        ids = positional[0] if positional else named.get("input_ids")
        if isinstance(ids, Tensor) and self.restored_tokens:
            self._fit(ids, named)
        first = self.get_seq_length()
        self._track.add(fed_of(positional, named, first=first, is_training=module.training))

    def lose(self) -> None:
        """Saves nothing any more: nobody knows what the states are of."""
        self._track.add(None)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """States of its own; model and client are those of the original."""
        made = type(self).__new__(type(self))
        shared = {"_model": self._model, "_prefix": self._prefix}
        own = {name: value for name, value in vars(self).items() if name not in shared}
        made.__dict__.update(shared | deepcopy(own, memo))
        return made

    def _restore(self, input_ids: Tensor, timeout_s: float) -> None:
        """Leaves the last token, which ``generate`` computes to choose the next one."""
        assert self._prefix is not None
        until_s = time.monotonic() + timeout_s
        token_ids = input_ids[0].tolist()
        keys = self._prefix.find(token_ids[:-1])
        count, states = self._prefix.load(keys, self._model.device, until_s=until_s)
        if count:
            for layer, pair in zip(self.layers, states, strict=True):
                layer.update(*pair)
        self.restored_tokens = count
        self._track.begin(token_ids[:count])

    def _fit(self, ids: Tensor, named: Mapping[str, object]) -> None:
        """Makes restored states fit the first call, if it has several rows or feeds all again."""
        keys = self.layers[0].keys
        if keys is None or self.get_seq_length() != self.restored_tokens:
            # It has been computed with: it fits.
            return
        if begins_at_first_token(ids, named):
            # Parts of ``generate`` look at no cache that is given to it, as chunked prefill.
            self.forget()
        elif keys.shape[0] == 1 < ids.shape[0]:
            # Beams, and several answers to one prompt.
            self.batch_repeat_interleave(ids.shape[0])


def _open(model: PreTrainedModel, client: Client, *, weights: str, tokens: int) -> StoredPrefix:
    made = ChunkStates.of_model(model, fingerprint(model, weights), chunk_tokens=tokens)
    return StoredPrefix(client=client, format=made)


@cache
def _own_client(process: int) -> Client:
    """The client of this process; a forked child has one of its own."""
    return Client(name=f"transformers of process {process}")


def _inputs_refusal(input_ids: Tensor, inputs: Mapping[str, object]) -> str:
    if input_ids.dim() != 2 or input_ids.shape[0] != 1:
        return f"it takes one sequence, not input_ids of shape {list(input_ids.shape)}"
    mask = inputs.get("attention_mask")
    if isinstance(mask, Tensor) and not bool(mask.all()):
        return "the prompt has padding"
    others = sorted(name for name, value in inputs.items() if value is not None)
    unknown = [name for name in others if name != "attention_mask"]
    return f"states may depend on {', '.join(unknown)}" if unknown else ""


def _follow(model: PreTrainedModel) -> None:
    """Lets caches know the model's calls, once for each model."""
    hooks = model._forward_pre_hooks.values()  # noqa: SLF001 (torch has no other way to ask)
    if _on_call not in hooks:
        model.register_forward_pre_hook(_on_call, with_kwargs=True)


def _on_call(
    module: nn.Module, positional: tuple[object, ...], named: Mapping[str, object]
) -> None:
    """Never raises into the model."""
    used = next((named[name] for name in CACHE_ARGUMENTS if named.get(name) is not None), None)
    if not isinstance(used, KvstoredCache):
        return
    try:
        used.follow(module, positional, named)
    except Exception:
        LOGGER.exception("kvstored does not know which tokens a call was given")
        used.lose()
