"""What a configuration asks of its machine. Pure."""

from dataclasses import dataclass
from enum import StrEnum

FILES_PER_SESSION = 4
"""Descriptors of a client: its socket, its call, its arena and its bell."""
FILES_OF_DAEMON = 256
"""Devices, index, logs, event loop, and what starts and ends meanwhile."""


class IoUringNeed(StrEnum):
    """Whether io_uring is used."""

    NONE = "none"
    WELCOME = "welcome"
    """Where the system offers it."""
    REQUIRED = "required"
    """The daemon does not start without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What is used when everything that is allowed is used; ``device_bytes`` of each device."""

    io_uring: IoUringNeed
    dram_bytes: int
    arenas_bytes: int
    device_bytes: int
    index_bytes: int
    sessions: int

    @property
    def open_files(self) -> int:
        """Descriptors of the daemon with all its sessions."""
        return FILES_OF_DAEMON + FILES_PER_SESSION * self.sessions
