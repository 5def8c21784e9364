"""How many connections the daemon's sockets take, and whose go when there are more. Pure.

A connection costs a descriptor. Without a bound one user could open connections until none is
left for devices, files of the index, arenas and the calls of all others.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

CONNECTIONS_PER_SESSION = 4
"""To the gRPC socket. A client has one, and two for a moment when it connects again."""
DESCRIPTORS_PER_SOCKET = 4
"""The session socket and the gRPC socket take at most one in so many of the daemon's descriptors
each; that for callers over TCP takes half as many. The rest is for arenas, bells and files."""
SESSION_CONNECTIONS_MAX = 4096
"""To the session socket, those before their handshake included."""
REMOTE_CONNECTIONS_MAX = 256
"""Of callers over TCP, who share a session for each namespace."""
METRICS_CONNECTIONS_MAX = 64
"""To the socket of monitoring."""
LOG_INTERVAL_S = 60.0
"""Of the connections that go there is one line in the log in so long."""
_FULL_SHARE = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Connections that each socket takes at once; what is more is closed without an answer."""

    session: int
    grpc: int
    remote: int

    @classmethod
    def of(cls, *, sessions_max: int, open_files_max: int) -> "ConnectionLimits":
        """The limits of a daemon that may have so many sessions and descriptors."""
        share = max(1, open_files_max // DESCRIPTORS_PER_SOCKET)
        return cls(
            session=min(SESSION_CONNECTIONS_MAX, share),
            grpc=min(CONNECTIONS_PER_SESSION * sessions_max, share),
            remote=min(REMOTE_CONNECTIONS_MAX, max(1, share // 2)),
        )

    @property
    def grpc_shared(self) -> int:
        """From so many connections to the gRPC socket on, the user with the most loses some.

        Below ``grpc``, so that others find a place at any time.
        """
        return max(1, int(self.grpc * _FULL_SHARE))


class LogPause:
    """Whether something that goes on may be logged once more. The owner serialises the calls."""

    def __init__(self) -> None:
        self._logged_s = -LOG_INTERVAL_S

    def is_over(self, now_s: float) -> bool:
        """Whether it was not logged in the last LOG_INTERVAL_S; the caller logs it then."""
        if now_s - self._logged_s < LOG_INTERVAL_S:
            return False
        self._logged_s = now_s
        return True


PeerT = TypeVar("PeerT", bound=Hashable)
ConnectionT = TypeVar("ConnectionT", bound=Hashable)


class ConnectionShares(Generic[PeerT, ConnectionT]):
    """Who has which connections, at most ``count_max`` together. The owner serialises the calls.

    When there are more, the peer with the most loses one: its last, or with ``ends_first`` its
    first. So nobody keeps others out, however many connections it opens.
    """

    def __init__(self, count_max: int, *, ends_first: bool = False) -> None:
        self._count_max = count_max
        self._ends_first = ends_first
        self._by_peer: dict[PeerT, dict[ConnectionT, None]] = {}
        self._peers: dict[ConnectionT, PeerT] = {}

    def __len__(self) -> int:
        """Connections that are counted."""
        return len(self._peers)

    def add(self, peer: PeerT, connection: ConnectionT) -> ConnectionT | None:
        """Counts a connection; the one that has to go for it and counts no more, maybe itself."""
        self._by_peer.setdefault(peer, {})[connection] = None
        self._peers[connection] = peer
        if len(self) <= self._count_max:
            return None
        # Of several with the most, the one that has just come: else all would lose in turn.
        most = max(self._by_peer, key=lambda one: (len(self._by_peer[one]), one == peer))
        own = self._by_peer[most]
        ending = next(iter(own)) if self._ends_first else next(reversed(own))
        self.remove(ending)
        return ending

    def remove(self, connection: ConnectionT) -> None:
        """Hears that a connection is over; one that is not counted is ignored."""
        peer = self._peers.pop(connection, None)
        if peer is not None:
            own = self._by_peer[peer]
            del own[connection]
            if not own:
                del self._by_peer[peer]
