"""The second gRPC server: control verbs for callers on other machines."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc

from kvstored.server.access import AccessRules
from kvstored.server.calls import Services
from kvstored.server.errors import RefusedError, refuse
from kvstored.server.grpc_server import (
    CALLS_WITHOUT_SESSION_MAX,
    add_services,
    connection_options,
)
from kvstored.server.listen import ListenError
from kvstored.server.remote.certificates import RenewedCertificates
from kvstored.server.remote.remote_sessions import RemoteSessions, names_of
from kvstored.server.remote.verbs import SERVED, sentence_of
from kvstored.server.session import Session
from kvstored_contract.reasons import Reason

LOGGER = logging.getLogger(__name__)
CONNECTION_S_MAX = 600
"""A connection ends after so long, and the caller's next one shows its certificate again."""
CONNECTION_GRACE_S = 60
"""How long its calls may go on then."""
_MS_PER_S = 1000

if TYPE_CHECKING:
    Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteOptions:
    """Where to listen, and with which certificates."""

    host: str
    port: int
    certificates: RenewedCertificates

    @property
    def target(self) -> str:
        """The address as gRPC takes it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@asynccontextmanager
async def served_remotely(
    options: RemoteOptions | None,
    rules: AccessRules,
    *,
    services: Services,
    epoch: int,
    connections_max: int,
) -> AsyncIterator[None]:
    """Serves over TCP while the body runs, where ``options`` say so; raises ListenError."""
    if options is None:
        yield
        return
    try:
        remote = await RemoteSessions(rules, services.sessions).open()
    except RefusedError as error:
        await services.sessions.close_all()
        raise ListenError(
            f"there is no room for the sessions of callers over TCP: {error}"
        ) from error
    server = grpc.aio.server(
        options=[
            *connection_options(connections_max),
            ("grpc.max_connection_age_ms", CONNECTION_S_MAX * _MS_PER_S),
            ("grpc.max_connection_age_grace_ms", CONNECTION_GRACE_S * _MS_PER_S),
            # Else a second process could listen there as well, and take some of the callers.
            ("grpc.so_reuseport", 0),
        ],
        maximum_concurrent_rpcs=services.sessions.calls_max + CALLS_WITHOUT_SESSION_MAX,
    )
    add_services(server, services, epoch=epoch, admit=partial(_admit, remote))
    try:
        server.add_secure_port(options.target, options.certificates.credentials())
        await server.start()
    except RuntimeError as error:
        await server.stop(None)
        await services.sessions.close_all()
        raise ListenError(
            f"cannot listen on {options.target}: {error}; correct remote.listen"
        ) from error
    LOGGER.info("serving verbs without bulk bytes on %s, with mutual TLS", options.target)
    try:
        yield
    finally:
        await server.stop(None)


def _admit(remote: RemoteSessions, name: str, context: "Context") -> Callable[[], Session]:
    """Whose session a call has; raises RefusedError."""
    if name not in SERVED:
        refuse(Reason.ACCESS_REFUSED, sentence_of(name))
    return partial(remote.find, names_of(context.auth_context()))
