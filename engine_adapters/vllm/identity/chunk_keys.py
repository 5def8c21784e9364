"""Keys of the chunks of one request. Pure.

The chain is the same for all ranks of a model: what differs between them, their layout, goes
into the key that each rank stores under.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from kvstored_contract.keys import token_bytes
from kvstored_contract.layout import hash_fields

_CHAIN = b"kvstored.vllm.chain.1"
_RANK = b"kvstored.vllm.rank.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Medium:
    """One image, sound or the like: its content's hash and the tokens that stand for it."""

    content: bytes
    first_token: int
    token_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestIdentity:
    """What changes the states of a request besides its tokens.

    ``adapter`` identifies LoRA weights, ``salt`` is vLLM's ``cache_salt``; empty for none.
    """

    adapter: bytes = b""
    salt: str = ""
    media: tuple[Medium, ...] = ()

    @property
    def is_told(self) -> bool:
        """Whether events may tell of it: they have tokens and an adapter's name, no more.

        A router would offer the chunks of one client to all.
        """
        return not (self.salt or self.media)

    def media_within(self, first_token: int, stop_token: int) -> tuple[bytes, ...]:
        """The media that stand for any token of a range, as fields of a hash.

        The place of each is part of it: two requests whose images begin at different tokens
        have different states.
        """
        return tuple(
            medium.content + struct.pack("<qq", medium.first_token, medium.token_count)
            for medium in self.media
            if medium.first_token < stop_token
            and medium.first_token + medium.token_count > first_token
        )


class KeyChain:
    """Keys of all complete chunks of one request; grows with its tokens. Not thread-safe.

    Each key has 32 bytes: SHA-256 over the namespace, the model's fingerprint, the request's
    identity, the key before, the chunk's tokens and the media that stand for any of them.
    ``root`` is what the first key has before it: all of this but tokens and media.
    """

    def __init__(
        self, *, namespace: str, fingerprint: str, identity: RequestIdentity, chunk_tokens: int
    ) -> None:
        self._identity = identity
        self._chunk_tokens = chunk_tokens
        self.root = hash_fields(
            [
                _CHAIN,
                namespace.encode(),
                fingerprint.encode(),
                identity.adapter,
                identity.salt.encode(),
            ]
        )
        self._keys: list[bytes] = []

    def extend(self, token_ids: Sequence[int]) -> Sequence[bytes]:
        """Keys of all complete chunks of ``token_ids``, which only ever grow at their end."""
        size = self._chunk_tokens
        for first in range(len(self._keys) * size, len(token_ids) - size + 1, size):
            stop = first + size
            self._keys.append(
                hash_fields(
                    [
                        self._keys[-1] if self._keys else self.root,
                        token_bytes(token_ids[first:stop]),
                        *self._identity.media_within(first, stop),
                    ]
                )
            )
        return self._keys


def rank_key(chain_key: bytes, layout_id: bytes) -> bytes:
    """The key under which the rank with this layout stores a chunk (32 bytes)."""
    return hash_fields([_RANK, chain_key, layout_id])
