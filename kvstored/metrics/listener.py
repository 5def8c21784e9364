"""Where monitoring is listened for: a TCP address, or a Unix socket."""

import socket
from pathlib import Path

from kvstored.config_values import TcpAddress
from kvstored.server.listen import ListenError, SocketPermissions, bound_listener


def listener_of(address: TcpAddress | Path, permissions: SocketPermissions) -> socket.socket:
    """A socket that listens; raises ListenError. A Unix socket has the permissions."""
    if isinstance(address, Path):
        return bound_listener(address, permissions)
    try:
        family = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((address.host, address.port), family=family)
    except OSError as error:
        raise ListenError(
            f"cannot listen on {address.host}:{address.port}: {error.strerror}; correct "
            "metrics.listen"
        ) from error
