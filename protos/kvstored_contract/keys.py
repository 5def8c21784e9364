"""Chunk keys: 32 bytes that name the content of a chunk by how it came to be. Pure."""

import struct
from collections.abc import Sequence

from kvstored_contract.layout import StateLayout, hash_fields


def token_bytes(token_ids: Sequence[int]) -> bytes:
    """Token ids as little-endian unsigned 32-bit words, the form that is hashed.

    Raises OverflowError for what is no such word.
    """
    try:
        return struct.pack(f"<{len(token_ids)}I", *token_ids)
    except struct.error as error:
        raise OverflowError("a token id is an integer from 0 to 2**32 - 1") from error


def chunk_key(
    *, namespace: str, layout_id: bytes, parent: bytes, token_ids: Sequence[int]
) -> bytes:
    """Key of one chunk. An empty ``parent`` is that of the first chunk of a prefix.

    SHA-256 over namespace, layout id, parent key and token ids, every field
    length-prefixed.
    """
    return hash_fields(
        [b"kvstored.prefix.1", namespace.encode(), layout_id, parent, token_bytes(token_ids)]
    )


def independent_key(*, namespace: str, layout_id: bytes, token_ids: Sequence[int]) -> bytes:
    """Key of a position-independent chunk: it has no parent (EPIC, section 4)."""
    return hash_fields(
        [b"kvstored.independent.1", namespace.encode(), layout_id, token_bytes(token_ids)]
    )


def prefix_keys(
    *, namespace: str, layout: StateLayout, token_ids: Sequence[int], parent: bytes = b""
) -> list[bytes]:
    """Keys of all complete chunks of ``token_ids``, each chained to the one before it.

    ``namespace`` is the session's, narrowed by the client's salt. Tokens behind the
    last complete chunk have no key. ``parent`` is the key of the chunk before the first
    token, empty where there is none.
    """
    layout_id = layout.layout_id
    keys: list[bytes] = []
    for start in range(0, len(token_ids) - layout.chunk_tokens + 1, layout.chunk_tokens):
        parent = chunk_key(
            namespace=namespace,
            layout_id=layout_id,
            parent=parent,
            token_ids=token_ids[start : start + layout.chunk_tokens],
        )
        keys.append(parent)
    return keys
