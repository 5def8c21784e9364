import os
import socket

import pytest

from kvstored_client.session.presence import Presence


def pair() -> tuple[Presence, socket.socket]:
    mine, peer = socket.socketpair()
    return Presence(mine, os.eventfd(0, os.EFD_NONBLOCK)), peer


def test_a_session_lives_until_the_other_side_closes() -> None:
    presence, peer = pair()
    assert presence.check()
    peer.close()
    assert not presence.lost
    assert not presence.check()
    assert presence.lost
    assert not presence.check()


def test_anything_on_the_socket_is_the_end() -> None:
    presence, peer = pair()
    peer.send(b"?")
    assert not presence.check()
    peer.close()


def test_a_reset_is_the_end() -> None:
    presence, peer = pair()
    presence._socket.send(b"unread")
    peer.close()
    assert not presence.check()


def test_the_other_side_sees_the_end() -> None:
    presence, peer = pair()
    presence.end()
    presence.end()
    assert peer.recv(1) == b""
    peer.close()
    presence.end()
    assert presence.lost


def test_listening_drains_reports() -> None:
    presence, peer = pair()
    os.eventfd_write(presence.eventfd, 5)
    presence.listen(None)
    with pytest.raises(BlockingIOError):
        presence.drain()
    presence.listen(0.001)
    assert presence.check()
    peer.close()
    presence.listen(None)
    assert presence.lost


def test_a_disowned_session_goes_on_for_its_owner() -> None:
    presence, peer = pair()
    copy = peer.dup()
    owner = socket.socket(fileno=os.dup(presence.socket_descriptor))
    presence.disown()
    assert presence.lost
    peer.setblocking(False)
    with pytest.raises(BlockingIOError):
        peer.recv(1)
    for connection in (owner, copy, peer):
        connection.close()
