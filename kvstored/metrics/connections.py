"""Connections to the socket of monitoring: so many at once that descriptors are left for others."""

import asyncio
import logging
import socket
import time
from contextlib import suppress

from aiohttp import web

from kvstored.server.connections import METRICS_CONNECTIONS_MAX, ConnectionShares, LogPause
from kvstored.server.peer import peer_credentials

LOGGER = logging.getLogger(__name__)
_ACCEPT_AGAIN_S = 1.0


class Connections:
    """Accepts on a listening socket for a server of aiohttp, which bounds no number itself.

    Where there are too many, the oldest of the peer with the most is ended: one that says nothing
    may be open for ever. Belongs to the endpoint's loop.
    """

    def __init__(self, listener: socket.socket, server: web.Server) -> None:
        self._listener = listener
        self._server = server
        self._shares: ConnectionShares[object, asyncio.BaseTransport] = ConnectionShares(
            METRICS_CONNECTIONS_MAX, ends_first=True
        )
        self._open: set[asyncio.BaseTransport] = set()
        self._log_pause = LogPause()

    async def accept(self) -> None:
        """Accepts until it is cancelled; connections go on then."""
        loop = asyncio.get_running_loop()
        self._listener.setblocking(False)
        while True:
            try:
                connection, address = await loop.sock_accept(self._listener)
            except OSError as error:
                LOGGER.warning("cannot accept a connection of monitoring: %s", error)
                await asyncio.sleep(_ACCEPT_AGAIN_S)
                continue
            # It may be gone already.
            with suppress(OSError):
                await self._add(connection, address)

    async def _add(self, connection: socket.socket, address: object) -> None:
        try:
            peer = _peer_of(connection, address)
            transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                self._server, connection
            )
        except BaseException:
            connection.close()
            raise
        for one in [one for one in self._open if one.is_closing()]:
            self._open.discard(one)
            self._shares.remove(one)
        self._open.add(transport)
        ending = self._shares.add(peer, transport)
        if ending is not None:
            self._open.discard(ending)
            assert isinstance(ending, asyncio.Transport)
            ending.abort()
            self._log(peer)

    def _log(self, peer: object) -> None:
        if self._log_pause.is_over(time.monotonic()):
            LOGGER.warning(
                "monitoring has %d connections, as many as there may be: old ones are ended "
                "(%s came last)",
                METRICS_CONNECTIONS_MAX,
                peer,
            )


def _peer_of(connection: socket.socket, address: object) -> object:
    """Who is at the other end: a user of this machine, or an address."""
    if connection.family == socket.AF_UNIX:
        return f"user {peer_credentials(connection).uid}"
    return address[0] if isinstance(address, tuple) else address
