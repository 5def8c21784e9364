"""Chunk keys: 32 bytes that name the content of a chunk by how it came to be. Pure."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from kvstored_contract.layout import StateLayout, hash_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The moment at which a history lost tokens (AttentionStore, section 3.4).

    ``first_token`` is the number of the first token that was computed after it, among all
    tokens that the history ever had. ``kept`` are the positions that stayed of those before
    the cut, ascending and apart; ``dropped_count`` is the number of all others.
    """

    first_token: int
    dropped_count: int
    kept: tuple[range, ...] = ()


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
    """Key of one chunk that belongs to no prefix, and so is shared with none.

    Entries of linked prompts (EPIC) do not use it: their states are those of a prompt that begins
    with them, and they may have several chunks. They have the keys of ``history_keys``, with an
    empty parent, so that entries and ordinary prefixes share what they have in common.
    """
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


def cut_key(cut: Cut, *, parent: bytes, offset: int) -> bytes:
    """What takes the place of ``parent`` for the chunk in which tokens follow a cut.

    Their states depend on what was dropped, so they chain on all that came before the cut
    (``parent``, and the first ``offset`` tokens of the chunk itself) and on the cut. Tokens
    after a cut never have the key of the same tokens without one.
    """
    bounds = [bound for kept in cut.kept for bound in (kept.start, kept.stop)]
    words = struct.pack(f"<3I{len(bounds)}I", offset, cut.dropped_count, len(cut.kept), *bounds)
    return hash_fields([b"kvstored.cut.1", parent, words])


def history_keys(
    *,
    namespace: str,
    layout: StateLayout,
    token_ids: Sequence[int],
    cuts: Sequence[Cut] = (),
    parent: bytes = b"",
    first_token: int = 0,
) -> list[bytes]:
    """Keys of the chunks of all tokens that a history ever had, dropped ones included.

    The last chunk may be incomplete. ``token_ids`` are those from number ``first_token`` on,
    the first of a chunk whose predecessor's key is ``parent``. ``cuts`` are those of the whole
    history in order. A cut changes the key of the chunk in which tokens follow it, and of all
    later ones. Without cuts complete chunks have the keys of ``prefix_keys``.
    """
    layout_id, chunk_tokens = layout.layout_id, layout.chunk_tokens
    keys: list[bytes] = []
    for start in range(0, len(token_ids), chunk_tokens):
        chunk = token_ids[start : start + chunk_tokens]
        number = first_token + start
        for cut in cuts:
            if number <= cut.first_token < number + len(chunk):
                parent = cut_key(cut, parent=parent, offset=cut.first_token - number)
        parent = chunk_key(namespace=namespace, layout_id=layout_id, parent=parent, token_ids=chunk)
        keys.append(parent)
    return keys
