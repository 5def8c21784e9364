"""One session: what it holds, and that its end returns all of it."""

from typing import cast

import pytest

from kvstored.server import session as session_module
from kvstored.server.access import Grant
from kvstored.server.arena import Arena
from kvstored.server.bell import Bell
from kvstored.server.errors import RefusedError
from kvstored.server.session import Session, SessionIdentity
from kvstored.store.read.read_stream import ReadStream
from kvstored_contract.layout import LayerState, StateKind, StateLayout
from kvstored_contract.reasons import Reason
from tests.kvstored.server.fake_store import FakeStream


def layout(model: str = "m") -> StateLayout:
    return StateLayout(
        model=model, dtype="f", layers=(LayerState(StateKind.KV, 16),), chunk_tokens=4
    )


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


def test_layouts(session: Session) -> None:
    layout_id = session.add_layout(layout())
    assert session.layout(layout_id) == layout()
    with pytest.raises(RefusedError, match="not registered") as info:
        session.layout(b"")
    assert info.value.reason is Reason.LAYOUT_UNKNOWN


def test_layouts_are_limited(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "LAYOUTS_PER_SESSION_MAX", 2)
    session.add_layout(layout("a"))
    session.add_layout(layout("b"))
    session.add_layout(layout("a"))
    with pytest.raises(RefusedError) as info:
        session.add_layout(layout("c"))
    assert info.value.reason is Reason.LIMIT_EXCEEDED


def test_reads_are_limited(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "READS_PER_SESSION_MAX", 1)
    stream = read()
    session.check_read_limit()
    session.add_read(stream)
    with pytest.raises(RefusedError) as info:
        session.check_read_limit()
    assert info.value.reason is Reason.LIMIT_EXCEEDED
    finish(stream)
    session.check_read_limit()


def test_close_cancels_reads_and_waits_for_them(
    session: Session, cancelled: list[ReadStream]
) -> None:
    stream = read()
    with session.transfer():
        session.add_read(stream)
    session.begin_close()
    assert cancelled == [stream]
    assert not session.is_idle()
    finish(stream)
    assert session.is_idle()
    session.release()


def test_close_waits_for_transfers(session: Session) -> None:
    with session.transfer():
        session.begin_close()
        assert not session.is_idle()
    assert session.is_idle()


def test_a_closing_session_starts_nothing(session: Session) -> None:
    session.begin_close()
    with pytest.raises(RefusedError) as info, session.transfer():
        pytest.fail("the body must not run")
    assert info.value.reason is Reason.TOKEN_UNKNOWN


def test_a_read_that_started_while_the_session_closed_is_cancelled(
    session: Session, cancelled: list[ReadStream]
) -> None:
    stream = read()
    with session.transfer():
        session.begin_close()
        session.add_read(stream)
    assert cancelled == [stream]
    assert not session.is_idle()
