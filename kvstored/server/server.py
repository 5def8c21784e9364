"""The server's life: sockets open, sessions served, everything drained in order."""

import asyncio
import contextlib
import logging
import os
import resource
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from kvstored.c_library import return_free_memory
from kvstored.full_collections import collect_all
from kvstored.server.access import AccessRules
from kvstored.server.calls import CallsInProgress, Latencies, Services
from kvstored.server.connections import ConnectionLimits
from kvstored.server.fair_connections import FairConnections
from kvstored.server.grpc_server import grpc_target, start_grpc_server
from kvstored.server.held.places import OPERATOR_SESSIONS_MAX
from kvstored.server.listen import SocketPermissions, bound_listener, passed_listener
from kvstored.server.notify import Notifier
from kvstored.server.operators.intake import Intake
from kvstored.server.operators.kept_pins import KeptPins
from kvstored.server.remote.remote_server import RemoteOptions, served_remotely
from kvstored.server.session import DECODINGS_PER_SESSION, LARGE_CALLS_PER_SESSION
from kvstored.server.session_socket import SessionSocket
from kvstored.server.session_table import SessionLimits, SessionTable, SessionUsage
from kvstored.server.thread_share import THREADS_PER_SESSION
from kvstored.tiers.tiered_store import TieredStore

LOGGER = logging.getLogger(__name__)
PIN_LOOK_S = 0.2
"""How late a pin of an operator may end."""
DRAIN_S = 5.0
"""How long calls in progress may go on after the daemon begins to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Where to listen, who may come, and how much they may have."""

    socket: Path
    grpc_socket: Path
    permissions: SocketPermissions
    rules: AccessRules
    limits: SessionLimits
    epoch: int
    remote: RemoteOptions | None = None
    """Where callers on other machines are served; None: nowhere."""


class Server:
    """Serves ``store`` while ``run`` runs. Belongs to one event loop."""

    def __init__(self, store: TieredStore, options: ServerOptions, notifier: Notifier) -> None:
        self._store = store
        self._options = options
        self._notifier = notifier
        self.latencies = Latencies()
        """How long calls took since the start."""
        self.intake = Intake()
        """Whether new work is taken."""
        self._limits = ConnectionLimits.of(
            sessions_max=options.limits.sessions_max + OPERATOR_SESSIONS_MAX,
            open_files_max=_open_files_max(),
        )
        self.connections = FairConnections(options.grpc_socket, self._limits.grpc_shared)
        """Those to the gRPC socket."""
        self._pins = KeptPins()
        self._sessions = SessionTable(
            options.limits,
            unpin=store.unpin,
            cancel=store.read_path.cancel,
            give_up=store.read_path.give_up,
            end=self._end_session,
        )

    def _end_session(self, session_id: int) -> None:
        self._store.hints.end_session(session_id)
        self._store.open_sequences.end_session(session_id)

    def usage(self) -> SessionUsage:
        """What the sessions hold now."""
        return self._sessions.usage()

    async def run(self, stop: asyncio.Event) -> None:
        """Serves until ``stop`` is set, then drains; raises ListenError.

        When this returns no client has a session and no call is in progress.
        """
        options = self._options
        # So that every session finds its share. A thread is made when none is idle.
        sessions_max = options.limits.sessions_max
        puts_max = (THREADS_PER_SESSION + LARGE_CALLS_PER_SESSION) * sessions_max
        calls_max = puts_max + DECODINGS_PER_SESSION * sessions_max
        with (
            ThreadPoolExecutor(puts_max, thread_name_prefix="kvstored-put") as puts,
            ThreadPoolExecutor(calls_max, thread_name_prefix="kvstored-call") as calls,
            contextlib.ExitStack() as listening,
        ):
            services = Services(
                sessions=self._sessions,
                store=self._store,
                calls=CallsInProgress(),
                latencies=self.latencies,
                intake=self.intake,
                pins=self._pins,
                put_executor=puts,
                call_executor=calls,
            )
            grpc_server = await start_grpc_server(
                options.grpc_socket,
                options.permissions,
                services=services,
                epoch=options.epoch,
                connections_max=self._limits.grpc,
            )
            remotely = contextlib.AsyncExitStack()
            try:
                await remotely.enter_async_context(
                    served_remotely(
                        options.remote,
                        options.rules,
                        services=services,
                        epoch=options.epoch,
                        connections_max=self._limits.remote,
                    )
                )
                listening.enter_context(self.connections.watched())
                # Last of all: a client that is welcomed here finds the services listening.
                listener = listening.enter_context(self._listener())
                sockets = SessionSocket(
                    listener,
                    rules=options.rules,
                    sessions=self._sessions,
                    grpc_target=grpc_target(options.grpc_socket),
                    epoch=options.epoch,
                    intake=self.intake,
                    connections_max=self._limits.session,
                )
                try:
                    await self._serve(stop, sockets)
                finally:
                    listening.close()
                    await self._drain(services.calls)
                    await sockets.close()
                    await self._sessions.close_all()
                    await self._sessions.give_back(self._pins.clear())
            finally:
                await remotely.aclose()
                await grpc_server.stop(None)
                await self._sessions.shut_down()
                options.grpc_socket.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _listener(self) -> Iterator[socket.socket]:
        """The session socket; its file goes with it, unless it is systemd's."""
        passed = passed_listener(os.environ, pid=os.getpid())
        if passed is not None:
            with passed:
                yield passed
            return
        with bound_listener(self._options.socket, self._options.permissions) as listener:
            try:
                yield listener
            finally:
                self._options.socket.unlink(missing_ok=True)

    async def _serve(self, stop: asyncio.Event, sockets: SessionSocket) -> None:
        tasks = [
            asyncio.create_task(sockets.serve()),
            asyncio.create_task(self._sessions.expire_leases()),
            asyncio.create_task(self._expire_pins()),
            asyncio.create_task(collect_all()),
            asyncio.create_task(return_free_memory()),
        ]
        self._notifier.ready(f"epoch {self._options.epoch}")
        LOGGER.info("serving epoch %d on %s", self._options.epoch, self._options.socket)
        try:
            await _until(stop, tasks)
        finally:
            await _cancel(tasks)

    async def _expire_pins(self) -> None:
        while True:
            await asyncio.sleep(PIN_LOOK_S)
            await self._sessions.give_back(self._pins.expire(time.monotonic()))

    async def _drain(self, calls: CallsInProgress) -> None:
        self._notifier.stopping()
        LOGGER.info("draining")
        self._sessions.drain()
        if not await calls.finished(DRAIN_S):
            LOGGER.warning("calls that were still in progress are cut off")


def _open_files_max() -> int:
    """Descriptors that this process may have."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if most == resource.RLIM_INFINITY else most


async def _until(stop: asyncio.Event, tasks: list[asyncio.Task[None]]) -> None:
    """Waits for ``stop``; a task that ends before is a fault and raises."""
    stopped = asyncio.create_task(stop.wait())
    done, _ = await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    for task in done:
        task.result()


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
