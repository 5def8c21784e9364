"""Puts chunks under the keys that a scheduler would look for, without a model."""

from pathlib import Path

from engine_adapters.vllm.chunk_keys import KeyChain, RequestIdentity, rank_key
from engine_adapters.vllm.lookup import Lookup
from kvstored_client import Ack, Client, NewChunk, Placement


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
            region = client.allocate(Placement.contiguous_bytes(layout, len(rank_keys)))
            assert region is not None
            client.put(
                layout,
                [NewChunk(key=key, token_count=layout.chunk_tokens) for key in rank_keys],
                Placement.contiguous(region, layout),
                ack=Ack.DURABLE,
            )
    return keys
