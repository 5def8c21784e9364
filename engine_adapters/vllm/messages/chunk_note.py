"""What a put says of a chunk to the engines that follow: how vLLM names its blocks. Pure.

A chunk's key is a hash: an engine that has not seen the tokens can tell a router nothing of it.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from engine_adapters.vllm.identity.chunk_keys import KeyChain
from kvstored_contract.keys import token_bytes
from kvstored_contract.layout import hash_fields
from kvstored_contract.limits import KEY_BYTES, NOTE_BYTES_MAX

VERSION = 1
SCOPE_BYTES = 16
_SCOPE = b"kvstored.vllm.scope.1"
_HEAD = struct.Struct(f"<BBHI{SCOPE_BYTES}s{KEY_BYTES}s{KEY_BYTES}s")
_NO_KEY = bytes(KEY_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkNote:
    """One chunk as vLLM's events name it.

    ``scope`` is the same for two engines exactly when they find each other's chunks and hash
    blocks alike (``scope_of``). ``parent_key`` is the chain key of the chunk before it, empty for
    the first. ``block_hashes`` are vLLM's own, all of one length, one for each block of
    ``token_ids``.
    """

    scope: bytes
    chain_key: bytes
    parent_key: bytes
    block_hashes: tuple[bytes, ...]
    token_ids: tuple[int, ...]

    def encode(self) -> bytes:
        """The note as it travels; empty when it is longer than a note may be."""
        head = _HEAD.pack(
            VERSION,
            len(self.block_hashes[0]),
            len(self.block_hashes),
            len(self.token_ids),
            self.scope,
            self.chain_key,
            self.parent_key or _NO_KEY,
        )
        encoded = b"".join([head, *self.block_hashes, token_bytes(self.token_ids)])
        return encoded if len(encoded) <= NOTE_BYTES_MAX else b""

    @classmethod
    def decode(cls, encoded: bytes) -> Self | None:
        """The note of a chunk; None for anything else that somebody may have put."""
        if len(encoded) < _HEAD.size or encoded[0] != VERSION:
            return None
        _, hash_bytes, block_count, token_count, scope, chain_key, parent = _HEAD.unpack_from(
            encoded
        )
        if not (hash_bytes and block_count):
            return None
        tokens_at = _HEAD.size + hash_bytes * block_count
        if len(encoded) != tokens_at + 4 * token_count:
            return None
        return cls(
            scope=scope,
            chain_key=chain_key,
            parent_key=b"" if parent == _NO_KEY else parent,
            block_hashes=tuple(
                encoded[first : first + hash_bytes]
                for first in range(_HEAD.size, tokens_at, hash_bytes)
            ),
            token_ids=struct.unpack_from(f"<{token_count}I", encoded, tokens_at),
        )


class NoteWriter:
    """Writes the notes of one engine's chunks.

    ``hashing`` names how this engine hashes blocks, which it does not know before its first
    request; empty until then.
    """

    def __init__(self, hashing: Callable[[], bytes], *, chunk_tokens: int, block_tokens: int):
        self._hashing = hashing
        self._chunk_tokens = chunk_tokens
        self._chunk_blocks = chunk_tokens // block_tokens

    def scope_of(self, root: bytes) -> bytes:
        """The scope of chunks whose keys begin with ``root``; empty while hashing is unknown."""
        hashing = self._hashing()
        return hash_fields([_SCOPE, root, hashing])[:SCOPE_BYTES] if hashing else b""

    def notes(
        self,
        chain: KeyChain,
        chunks: range,
        *,
        token_ids: Sequence[int],
        block_hashes: Sequence[bytes],
    ) -> Iterator[ChunkNote]:
        """Notes of consecutive chunks of a request; none where it has too few hashes of blocks."""
        scope = self.scope_of(chain.root)
        if not scope or len(block_hashes) < chunks.stop * self._chunk_blocks:
            return
        keys = chain.extend(())
        for chunk in chunks:
            first_token, first_block = chunk * self._chunk_tokens, chunk * self._chunk_blocks
            yield ChunkNote(
                scope=scope,
                chain_key=keys[chunk],
                parent_key=keys[chunk - 1] if chunk else b"",
                block_hashes=tuple(block_hashes[first_block : first_block + self._chunk_blocks]),
                token_ids=tuple(token_ids[first_token : first_token + self._chunk_tokens]),
            )
