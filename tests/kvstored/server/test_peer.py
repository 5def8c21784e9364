"""What the kernel says about a peer."""

import errno
import os
import socket
from typing import Any, cast

import pytest

from kvstored.server.peer import peer_credentials


def test_peer_is_this_process() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs:
        credentials = peer_credentials(ours)
    assert credentials.pid == os.getpid()
    assert credentials.uid == os.getuid()
    assert credentials.gid == os.getgid()
    assert credentials.groups == frozenset(os.getgroups())


class CrowdedSocket:
    """A socket whose peer is in more groups than can be asked for."""

    def __init__(self, code: int) -> None:
        self.code = code

    def getsockopt(self, _level: int, option: int, _length: int) -> bytes:
        if option == socket.SO_PEERCRED:
            return bytes(12)
        raise OSError(self.code, "no")


def test_a_peer_in_too_many_groups_counts_with_its_user_only() -> None:
    crowded = cast("Any", CrowdedSocket(errno.ERANGE))
    assert peer_credentials(crowded).groups == frozenset()


def test_other_errors_are_not_hidden() -> None:
    with pytest.raises(OSError, match="no"):
        peer_credentials(cast("Any", CrowdedSocket(errno.EIO)))
