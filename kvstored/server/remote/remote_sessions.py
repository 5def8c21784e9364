"""Whose session a call over TCP has: one for each namespace, as the caller's certificate says."""

from collections.abc import Iterable, Mapping
from typing import Self

from kvstored.server.access import AccessRules
from kvstored.server.errors import refuse
from kvstored.server.session import Session, SessionKind
from kvstored.server.session_table import SessionTable
from kvstored_contract.limits import ALIGNMENT_BYTES
from kvstored_contract.reasons import Reason

NAME_KEYS = ("x509_subject_alternative_name", "x509_common_name")
"""Where gRPC has the names of a certificate that it has verified."""
NAME_CHARACTERS_MAX = 100
"""Of a name that a refusal repeats."""


def names_of(peer: Mapping[str, Iterable[bytes]]) -> tuple[str, ...]:
    """The names in the certificate of a peer, as gRPC describes it."""
    return tuple(name.decode(errors="replace") for key in NAME_KEYS for name in peer.get(key, ()))


class RemoteSessions:
    """Sessions without a client of their own; each has an arena of one page, which nobody maps.

    All callers of a namespace share its session, and with it the limits of calls, leases and
    queues. They are open as long as the daemon serves. Belongs to the event loop.
    """

    def __init__(self, rules: AccessRules, sessions: SessionTable) -> None:
        self._rules = rules
        self._sessions = sessions
        self._tokens: dict[str, str] = {}

    async def open(self) -> Self:
        """Opens them; raises RefusedError where the limits of sessions leave no room."""
        for grant in self._rules.certificate_grants():
            session = await self._sessions.open(
                grant,
                client_name="callers over TCP",
                arena_bytes=ALIGNMENT_BYTES,
                kind=SessionKind.REMOTE,
            )
            self._tokens[grant.namespace] = session.identity.token
        return self

    def find(self, names: Iterable[str]) -> Session:
        """The session of a certificate with these names; raises RefusedError."""
        names = tuple(names)
        grant = self._rules.certificate_grant(names)
        if grant is None:
            shown = ", ".join(name[:NAME_CHARACTERS_MAX] for name in names) or "no name"
            refuse(
                Reason.ACCESS_REFUSED,
                f"no tenant in [access] names this certificate ({shown}); add one of its names "
                "to the certificates of a tenant",
            )
        return self._sessions.find(self._tokens[grant.namespace])
