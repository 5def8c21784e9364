"""Which key opens which namespace."""

import hashlib
import tomllib
from collections.abc import Mapping
from pathlib import Path

from engine_adapters.server.protocol.api_error import UNKNOWN_KEY, ApiError

SCHEME = "bearer"


class KeysError(ValueError):
    """A file of keys that cannot be used; the message says why."""


class ApiKeys:
    """Keys are looked up by their digests, so that no comparison tells how much of one is right."""

    def __init__(self, namespaces: Mapping[str, str]) -> None:
        """By key; without any, every client has the namespace of the empty name."""
        self._namespaces = {_digest(key): name for key, name in namespaces.items()}
        self.names = tuple(sorted(set(namespaces.values()))) or ("",)
        """All namespaces."""

    @classmethod
    def from_file(cls, path: Path) -> "ApiKeys":
        """Reads a TOML file with a line ``"KEY" = "NAMESPACE"`` for each key; raises KeysError."""
        try:
            fields = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise KeysError(f"cannot read the keys in {path}: {error}") from error
        if not fields:
            raise KeysError(f'{path} has no keys; each is a line "KEY" = "NAMESPACE"')
        for name in fields.values():
            if not isinstance(name, str) or not name:
                raise KeysError(f'{path} must have lines "KEY" = "NAMESPACE" only')
        return cls(fields)

    def namespace_of(self, authorization: str | None) -> str:
        """The namespace of a request by its header; raises ApiError with 401."""
        if not self._namespaces:
            return ""
        scheme, _, key = (authorization or "").partition(" ")
        name = self._namespaces.get(_digest(key.strip()))
        if scheme.lower() != SCHEME or name is None:
            raise ApiError(
                "no known API key: send the header Authorization: Bearer KEY",
                status=401,
                kind=UNKNOWN_KEY,
                code="invalid_api_key",
            )
        return name


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="surrogateescape")).digest()
