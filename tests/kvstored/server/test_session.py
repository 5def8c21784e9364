"""One session: what it holds, and that its end returns all of it."""

from typing import cast

import pytest

from kvstored.server.access import Grant
from kvstored.server.errors import RefusedError
from kvstored.server.held.arena import Arena
from kvstored.server.held.bell import Bell
from kvstored.server.session import Session, SessionIdentity
from kvstored.store.read.read_stream import ReadStream
from kvstored_contract.reasons import Reason
from tests.kvstored.server.fake_store import FakeStream


@pytest.fixture
def cancelled() -> list[ReadStream]:
    return []


@pytest.fixture
def session(cancelled: list[ReadStream]) -> Session:
    identity = SessionIdentity(
        session_id=1,
        token="t",
        grant=Grant(namespace="n", admin=False, huge_pages=False),
        client_name="c",
    )
    return Session(
        identity, arena=Arena(4096, huge_pages=False), bell=Bell(), cancel=cancelled.append
    )


def read() -> ReadStream:
    return cast("ReadStream", FakeStream())


def finish(stream: ReadStream) -> None:
    cast("FakeStream", stream).finish()


def test_close_cancels_reads_and_waits_for_them(
    session: Session, cancelled: list[ReadStream]
) -> None:
    stream = read()
    with session.arena_use.transfer():
        session.arena_use.add_read(stream)
    session.begin_close()
    assert cancelled == [stream]
    assert not session.is_idle()
    finish(stream)
    assert session.is_idle()
    session.release()


def test_close_waits_for_transfers(session: Session) -> None:
    with session.arena_use.transfer():
        session.begin_close()
        assert not session.is_idle()
    assert session.is_idle()


def test_a_closing_session_starts_nothing(session: Session) -> None:
    session.begin_close()
    with pytest.raises(RefusedError) as info, session.arena_use.transfer():
        pytest.fail("the body must not run")
    assert info.value.reason is Reason.TOKEN_UNKNOWN


def test_a_read_that_started_while_the_session_closed_is_cancelled(
    session: Session, cancelled: list[ReadStream]
) -> None:
    stream = read()
    with session.arena_use.transfer():
        session.begin_close()
        session.arena_use.add_read(stream)
    assert cancelled == [stream]
    assert not session.is_idle()
