"""How a client is set up, checked once when it is made."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kvstored_contract.limits import ALIGNMENT_BYTES, CLIENT_NAME_BYTES_MAX, HUGE_PAGE_BYTES

DEFAULT_SOCKET = "/run/kvstored/kvstored.sock"
SOCKET_VARIABLE = "KVSTORED_SOCKET"
DEFAULT_ARENA_BYTES = "256MiB"

_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SIZE = re.compile(r"(\d+)\s*([KMGT]iB|B|)")


class OptionError(ValueError):
    """An option that makes no sense; the message names it."""


def parse_bytes(size: int | str) -> int:
    """Bytes of a size such as ``"256MiB"``; a plain number is bytes. Raises OptionError."""
    if isinstance(size, int):
        return size
    match = _SIZE.fullmatch(size.strip())
    if match is None:
        raise OptionError(f"{size!r} is no size; write it like 256MiB or 2GiB")
    return int(match[1]) * _UNITS[match[2]]


def whole_pages(arena_bytes: int) -> int:
    """The size that the daemon is asked for: huge pages where at least one is filled."""
    page_bytes = HUGE_PAGE_BYTES if arena_bytes >= HUGE_PAGE_BYTES else ALIGNMENT_BYTES
    return -(-arena_bytes // page_bytes) * page_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a client, as ``Client`` describes them."""

    socket: Path
    arena_bytes: int
    name: str = ""
    salt: str = ""
    strict: bool = False
    reconnect_interval_s: float = 1.0

    def __post_init__(self) -> None:
        if self.arena_bytes < 1:
            raise OptionError(f"arena_bytes must be above 0, not {self.arena_bytes}")
        if len(self.name.encode()) > CLIENT_NAME_BYTES_MAX:
            raise OptionError(f"name is longer than {CLIENT_NAME_BYTES_MAX} bytes")
        if self.reconnect_interval_s < 0:
            raise OptionError(
                f"reconnect_interval_s must not be negative: {self.reconnect_interval_s}"
            )


def resolve_socket(
    socket: str | os.PathLike[str] | None, environment: Mapping[str, str] = os.environ
) -> Path:
    """The daemon's session socket: as given, else KVSTORED_SOCKET, else the service's path."""
    return Path(socket or environment.get(SOCKET_VARIABLE) or DEFAULT_SOCKET)
