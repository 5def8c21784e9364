"""Names of chunks inside the store."""

import hashlib
from typing import NamedTuple

NAMESPACE_ID_BYTES = 16
KEY_BYTES = 32
CHUNK_ID_BYTES = NAMESPACE_ID_BYTES + KEY_BYTES


def namespace_id(namespace: str) -> bytes:
    """The 16 bytes under which a namespace appears on media."""
    return hashlib.sha256(namespace.encode()).digest()[:NAMESPACE_ID_BYTES]


class ChunkId(NamedTuple):
    """A chunk's identity: the server's namespace, then the client's key.

    The namespace is part of the identity, so that a client that invents keys can
    never name another namespace's chunk. A tuple, because calls look up thousands of
    them and a hash that is computed in Python keeps the interpreter from everybody.
    """

    namespace_id: bytes
    key: bytes

    def encode(self) -> bytes:
        """The identity as an index key."""
        return self.namespace_id + self.key

    @classmethod
    def decode(cls, data: bytes) -> "ChunkId":
        """Splits an index key."""
        return cls(data[:NAMESPACE_ID_BYTES], data[NAMESPACE_ID_BYTES:])
