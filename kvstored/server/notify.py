"""What systemd wants to hear: readiness, the end, and a pulse (``sd_notify``)."""

import asyncio
import logging
import os
import socket
from collections.abc import Mapping
from typing import Self

LOGGER = logging.getLogger(__name__)

SEND_TIMEOUT_S = 0.1
"""How long the event loop may be held up by a manager that does not take its messages."""
_USEC_PER_S = 1_000_000
_PINGS_PER_INTERVAL = 3


class Notifier:
    """Tells the service manager about the daemon; silent where there is none.

    ``address`` is that of NOTIFY_SOCKET, ``watchdog_s`` the longest silence that the
    manager accepts (None: no watchdog).
    """

    def __init__(self, address: str | None, *, watchdog_s: float | None) -> None:
        # A leading @ stands for the abstract namespace.
        self._address = "\0" + address[1:] if address and address.startswith("@") else address
        self._watchdog_s = watchdog_s

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], *, pid: int) -> Self:
        """Reads NOTIFY_SOCKET and WATCHDOG_USEC; the latter counts only for WATCHDOG_PID."""
        watchdog_s = None
        if environment.get("WATCHDOG_PID", str(pid)) == str(pid):
            usec = environment.get("WATCHDOG_USEC", "")
            watchdog_s = int(usec) / _USEC_PER_S if usec.isdecimal() and int(usec) else None
        return cls(environment.get("NOTIFY_SOCKET"), watchdog_s=watchdog_s)

    def ready(self, status: str) -> None:
        """The daemon serves."""
        self._send(f"READY=1\nSTATUS={status}")

    def stopping(self) -> None:
        """The daemon drains."""
        self._send("STOPPING=1\nSTATUS=draining")

    async def keep_alive(self) -> None:
        """Pings from the event loop, for ever: a loop that hangs is restarted."""
        if self._address is None or self._watchdog_s is None:
            return
        while True:
            self._send("WATCHDOG=1")
            await asyncio.sleep(self._watchdog_s / _PINGS_PER_INTERVAL)

    def _send(self, message: str) -> None:
        """A manager that is gone must not end the daemon or keep it from draining."""
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.settimeout(SEND_TIMEOUT_S)
                sender.sendto(message.encode(), self._address)
        except OSError as error:
            LOGGER.warning("the service manager does not listen: %s", error)


def environment_notifier() -> Notifier:
    """The notifier of this process."""
    return Notifier.from_environment(os.environ, pid=os.getpid())
