"""Which process is at the other end of a Unix socket."""

import errno
import socket
import struct

from kvstored.server.access import Credentials

_CREDENTIALS = struct.Struct("3i")
# Missing from the socket module; the value is fixed by the Linux ABI.
_SO_PEERGROUPS = 59
_GROUP = struct.Struct("I")
GROUPS_MAX = 256
"""Supplementary groups that can be asked for; ``getsockopt`` takes 1 KiB."""


def peer_credentials(connection: socket.socket) -> Credentials:
    """The peer's identity at the time when it connected; raises OSError."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(raw)
    return Credentials(
        pid=pid,
        uid=uid,
        gid=gid,
        groups=_supplementary_groups(connection),
    )


def _supplementary_groups(connection: socket.socket) -> frozenset[int]:
    """None for a user in more than GROUPS_MAX groups: then only user and main group count."""
    try:
        raw = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, GROUPS_MAX * _GROUP.size)
    except OSError as error:
        if error.errno != errno.ERANGE:
            raise
        return frozenset()
    return frozenset(group for (group,) in _GROUP.iter_unpack(raw))
