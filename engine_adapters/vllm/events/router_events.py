"""Events as routers understand them: vLLM's own blocks, hashes and fields. Imports vLLM."""

from collections.abc import Callable
from typing import Any

from vllm.distributed.kv_events import BlockRemoved, BlockStored, KVCacheEvent
from vllm.v1.core import kv_cache_utils

from engine_adapters.vllm.events.change_follower import ChangeFollower, FollowedStore
from engine_adapters.vllm.messages.chunk_events import BlockEvent, RemovedBlocks
from engine_adapters.vllm.messages.chunk_note import NoteWriter

MEDIUM = "STORAGE"
"""One that routers have a weight for; they drop what they do not know."""
LOCALITY = "LOCAL"
"""Only this node's engines can load it."""


def hashing_of(vllm_config: Any) -> bytes:
    """What the hash of a block depends on besides its content; empty before vLLM knows it."""
    seed = getattr(kv_cache_utils, "NONE_HASH", b"")
    algorithm: str = vllm_config.cache_config.prefix_caching_hash_algo
    return algorithm.encode() + b" " + bytes(seed) if seed else b""


def are_published(vllm_config: Any) -> bool:
    """Whether the engine publishes KV events."""
    config = vllm_config.kv_events_config
    return config is not None and bool(config.enable_kv_cache_events)


def tellers_of(
    vllm_config: Any,
    followed: FollowedStore,
    *,
    block_tokens: int,
    manager: Callable[[], Any],
) -> tuple[NoteWriter, ChangeFollower | None]:
    """What writes the engine's notes, and what follows the store for routers, started.

    The latter is None where the engine publishes no events: its notes help the others of the node.
    ``manager`` gives vLLM's of the KV cache, which is there before the first event.
    """
    writer = NoteWriter(
        lambda: hashing_of(vllm_config),
        chunk_tokens=followed.layouts[0].chunk_tokens,
        block_tokens=block_tokens,
    )
    if not are_published(vllm_config):
        return writer, None
    events = RouterEvents(block_tokens, lambda: group_kind_of(manager()))
    follower = ChangeFollower(followed, writer, events.of)
    follower.start()
    return writer, follower


class RouterEvents:
    """Makes vLLM's events of one group of blocks, which has number 0.

    ``group_kind`` gives the kind and the sliding window of that group as vLLM names them in
    its own events. Fields that an older vLLM does not have are left out.
    """

    def __init__(
        self, block_tokens: int, group_kind: Callable[[], tuple[str | None, int | None]]
    ) -> None:
        self._block_tokens = block_tokens
        self._group_kind = group_kind

    def of(self, event: BlockEvent) -> KVCacheEvent:
        """One event; ownership stays unset, since routers leave out what somebody else owns."""
        hashes = [kv_cache_utils.maybe_convert_block_hash(each) for each in event.block_hashes]
        if isinstance(event, RemovedBlocks):
            return _made(
                BlockRemoved, block_hashes=hashes, medium=MEDIUM, group_idx=0, locality=LOCALITY
            )
        kind, window = self._group_kind()
        return _made(
            BlockStored,
            block_hashes=hashes,
            parent_block_hash=(
                kv_cache_utils.maybe_convert_block_hash(event.parent_hash)
                if event.parent_hash
                else None
            ),
            token_ids=list(event.token_ids),
            block_size=self._block_tokens,
            lora_id=None,
            medium=MEDIUM,
            lora_name=event.adapter_name or None,
            group_idx=0,
            kv_cache_spec_kind=kind,
            kv_cache_spec_sliding_window=window,
            locality=LOCALITY,
        )


def group_kind_of(kv_cache_manager: Any) -> tuple[str | None, int | None]:
    """What vLLM's own events say of its group of blocks, where this vLLM says anything."""
    kinds = getattr(kv_cache_manager, "kv_cache_event_metadata", None)
    kind: tuple[str | None, int | None] = kinds[0] if kinds else (None, None)
    return kind


def _made(kind: type[Any], **fields: object) -> KVCacheEvent:
    known = kind.__struct_fields__
    return kind(**{name: value for name, value in fields.items() if name in known})
