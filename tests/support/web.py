"""HTTP over a Unix socket."""

import http.client
import socket
from contextlib import closing
from pathlib import Path


class UnixConnection(http.client.HTTPConnection):
    """A connection to the socket at ``path``."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(str(self._path))


def answer(connection: http.client.HTTPConnection, path: str) -> tuple[int, str]:
    """Status and body of a GET."""
    with closing(connection):
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()


def get(socket_path: Path, path: str) -> tuple[int, str]:
    """Status and body of a GET over a Unix socket."""
    return answer(UnixConnection(socket_path), path)
