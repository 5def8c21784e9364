"""What a user writes into ``kv_connector_extra_config``. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Self, get_type_hints

from engine_adapters.restore import LEAST_WAIT_S
from kvstored_contract.limits import DEADLINE_MS_MAX, LEASE_MS_MAX

CHUNK_TOKENS_LEAST = 64
"""Chunks of fewer tokens cost more in requests than in bytes."""
_MS = 1000


class OptionError(ValueError):
    """An option that makes no sense; one sentence that names it."""


class RestoreMode(StrEnum):
    """How a request regains its stored prefix."""

    OFF = "off"
    """Nothing is saved, nothing is loaded."""
    PREFIX = "prefix"
    """The whole stored prefix is loaded before prefill."""
    CAKE = "cake"
    """Prefill computes from the front while the store loads from the back (Cake, section 4)."""
    HCACHE = "hcache"
    """Hidden states are stored and projected to keys and values (HCache, section 4.1)."""
    PIC = "pic"
    """As hcache; and entries that a request names are linked at any position (EPIC)."""
    AUTO = "auto"
    """The planner chooses for each request by measured costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterOptions:
    """Options of the connector. Raises OptionError.

    ``socket`` is the daemon's, empty for the service's. ``arena_bytes`` is the memory that each
    worker shares with the daemon. ``chunk_tokens`` 0 chooses the least multiple of the engine's
    block that has 64 tokens. ``span_bytes`` bounds what one read brings.

    ``match_wait_ms`` is the longest that a scheduler step waits for an answer that is on its
    way; a request that has none after ``match_timeout_ms`` is computed. A load that is not
    complete after ``load_timeout_ms`` is given up, and one that a request waits for as soon as
    computing would be sooner, but not before ``least_wait_ms``. ``lease_ms`` keeps what was found
    from being evicted before it is loaded. ``least_load_tokens``: fewer are computed rather than
    loaded. ``saves`` is False for engines that only read. ``salt`` narrows the namespace.
    ``cost_profile`` is a file of measured costs, by which ``hcache`` chooses what each layer
    stores.
    """

    socket: str = ""
    mode: RestoreMode = RestoreMode.AUTO
    arena_bytes: str | int = "256MiB"
    chunk_tokens: int = 0
    span_bytes: int = 32 * 1024 * 1024
    match_wait_ms: int = 1
    match_timeout_ms: int = 250
    load_timeout_ms: int = 10_000
    least_wait_ms: int = int(LEAST_WAIT_S * _MS)
    lease_ms: int = 30_000
    least_load_tokens: int = 1
    saves: bool = True
    salt: str = ""
    cost_profile: str = ""

    def __post_init__(self) -> None:
        for name in ("span_bytes", "match_timeout_ms", "load_timeout_ms", "least_load_tokens"):
            if getattr(self, name) < 1:
                raise OptionError(f"{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("chunk_tokens", "match_wait_ms", "least_wait_ms", "lease_ms"):
            if getattr(self, name) < 0:
                raise OptionError(f"{name} is {getattr(self, name)}; it must not be negative")
        # A daemon refuses more, and each request would be a miss.
        for name, most in (("load_timeout_ms", DEADLINE_MS_MAX), ("lease_ms", LEASE_MS_MAX)):
            if getattr(self, name) > most:
                raise OptionError(f"{name} is {getattr(self, name)}; it must be at most {most}")

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        """Options of a JSON object; raises OptionError for a key or a value that is none."""
        known = {field.name for field in fields(cls)}
        unknown = sorted(document.keys() - known)
        if unknown:
            raise OptionError(
                f"kv_connector_extra_config has the unknown key {unknown[0]!r}; known are "
                f"{', '.join(sorted(known))}"
            )
        kinds = get_type_hints(cls)
        values: dict[str, Any] = {
            name: _value(name, kinds[name], value) for name, value in document.items()
        }
        return cls(**values)

    def chunk_tokens_for(self, block_tokens: int) -> int:
        """Tokens of a chunk for an engine with blocks of ``block_tokens``; raises OptionError."""
        if self.chunk_tokens == 0:
            return block_tokens * -(-CHUNK_TOKENS_LEAST // block_tokens)
        if self.chunk_tokens % block_tokens:
            raise OptionError(
                f"chunk_tokens is {self.chunk_tokens}; it must be a multiple of the engine's "
                f"block of {block_tokens} tokens"
            )
        return self.chunk_tokens

    @property
    def match_wait_s(self) -> float:
        """``match_wait_ms`` in seconds."""
        return self.match_wait_ms / _MS

    @property
    def match_timeout_s(self) -> float:
        """``match_timeout_ms`` in seconds."""
        return self.match_timeout_ms / _MS

    @property
    def load_timeout_s(self) -> float:
        """``load_timeout_ms`` in seconds."""
        return self.load_timeout_ms / _MS

    @property
    def least_wait_s(self) -> float:
        """``least_wait_ms`` in seconds."""
        return self.least_wait_ms / _MS


def _value(name: str, kind: object, value: object) -> object:
    if kind is RestoreMode:
        try:
            return RestoreMode(str(value))
        except ValueError:
            modes = ", ".join(RestoreMode)
            raise OptionError(f"mode is {value!r}; it must be one of {modes}") from None
    if isinstance(value, bool) is not (kind is bool) or not isinstance(value, kind):  # type: ignore[arg-type]  # a class or a union of classes
        raise OptionError(f"{name} is {value!r}; it must be {_WANTED.get(kind, 'a size')}")
    return value


_WANTED: dict[object, str] = {str: "a text", int: "a whole number", bool: "true or false"}
