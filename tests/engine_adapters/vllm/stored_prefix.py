"""Puts chunks under the keys that a scheduler would look for, without a model."""

from collections.abc import Sequence
from pathlib import Path

from engine_adapters.vllm.identity.chunk_keys import KeyChain, RequestIdentity, rank_key
from engine_adapters.vllm.messages.orders import SaveOrder
from engine_adapters.vllm.scheduler_side.lookup import Lookup
from kvstored_client import Ack, Client, NewChunk, Placement, StateLayout


def store_prefix(
    socket: Path, lookup: Lookup, token_ids: list[int], *, salt: str = ""
) -> list[bytes]:
    """Stores all complete chunks for all ranks; the keys of the first rank."""
    keys: list[bytes] = []
    with Client(socket, arena_bytes="16MiB", salt=salt, strict=True) as client:
        client.available()
        for layout in lookup.layouts:
            chain = KeyChain(
                namespace=client.namespace,
                fingerprint=layout.model,
                identity=RequestIdentity(),
                chunk_tokens=layout.chunk_tokens,
            )
            rank_keys = [rank_key(key, layout.layout_id) for key in chain.extend(token_ids)]
            keys = keys or rank_keys
            tokens = layout.chunk_tokens
            _put(client, layout, [NewChunk(key=key, token_count=tokens) for key in rank_keys])
    return keys


def store_save(socket: Path, lookup: Lookup, save: SaveOrder, *, salt: str) -> list[bytes]:
    """Stores what an order has workers save, with its notes, for all ranks; all keys."""
    keys: list[bytes] = []
    with Client(socket, arena_bytes="16MiB", salt=salt, strict=True) as client:
        for layout in lookup.layouts:
            chunks = [
                NewChunk(
                    key=rank_key(key, layout.layout_id),
                    token_count=layout.chunk_tokens,
                    note=note,
                )
                for key, note in zip(save.chain_keys, save.notes, strict=True)
            ]
            _put(client, layout, chunks)
            keys += [chunk.key for chunk in chunks]
    return keys


def _put(client: Client, layout: StateLayout, chunks: Sequence[NewChunk]) -> None:
    region = client.allocate(Placement.contiguous_bytes(layout, len(chunks)))
    assert region is not None
    client.put(
        layout,
        chunks,
        Placement.contiguous(region, layout),
        ack=Ack.DURABLE,
    )
