"""Flows without any transport: what is asked, and what an interrupt means."""

import os
import socket
from collections.abc import Iterator

import pytest

from kvstored_client.errors import RegionStaleError, RequestInvalidError
from kvstored_client.session.arena import Arena
from kvstored_client.session.presence import Presence
from kvstored_client.session.session import Session
from kvstored_client.values import Ack, NewChunk, Order
from kvstored_client.verbs import store_verbs
from kvstored_client.verbs.placement import Placement
from kvstored_contract.layout import StateLayout
from kvstored_protos.v1 import session_pb2, store_pb2

KEY = b"k" * 32
PLACEMENT = Placement(regions=(), base=0, layer_stride=8192)


@pytest.fixture
def session(layout: StateLayout) -> Iterator[Session]:
    """A session that has announced the layout."""
    mine, peer = socket.socketpair()
    presence = Presence(mine, os.eventfd(0))
    arena = Arena(memoryview(bytearray(65536)), presence.check)
    session = Session(session_pb2.Welcome(), presence, arena)
    session.registered.add(layout.layout_id)
    yield session
    peer.close()


def test_an_interrupted_put_ends_the_session(session: Session, layout: StateLayout) -> None:
    verb = store_verbs.put(
        layout,
        [NewChunk(key=KEY, token_count=1)],
        PLACEMENT,
        ack=Ack.STAGED,
        timeout_ms=1000,
    )
    flow = verb.flow(session)
    call = next(flow)
    assert call.timeout_s > 1
    flow.close()
    assert session.presence.lost


def test_an_interrupted_match_leaves_the_session_alone(
    session: Session, layout: StateLayout
) -> None:
    flow = store_verbs.match(layout, [KEY], lease_ms=0).flow(session)
    next(flow)
    flow.close()
    assert not session.presence.lost


def test_a_read_names_a_board_that_is_its_own(session: Session, layout: StateLayout) -> None:
    flow = store_verbs.read(
        layout,
        [KEY, KEY],
        PLACEMENT,
        order=Order.TAIL_FIRST,
        first_layer=1,
        layer_count=None,
        window_bytes=0,
        timeout_ms=1000,
    ).flow(session)
    request = next(flow).request
    assert isinstance(request, store_pb2.ReadRequest)
    assert (request.layer_count, request.board_offset) == (2, 65536 - 4096)
    with pytest.raises(StopIteration) as stop:
        flow.send(store_pb2.ReadReply())
    assert not stop.value.value.finished
    assert session.arena.free_bytes == 65536 - 4096


@pytest.mark.parametrize(("first_layer", "layer_count"), [(-1, 1), (0, 0), (0, 4), (3, None)])
def test_layers_outside_the_layout_are_not_asked_for(
    session: Session, layout: StateLayout, first_layer: int, layer_count: int | None
) -> None:
    verb = store_verbs.read(
        layout,
        [KEY],
        PLACEMENT,
        order=Order.TAIL_FIRST,
        first_layer=first_layer,
        layer_count=layer_count,
        window_bytes=0,
        timeout_ms=1000,
    )
    with pytest.raises(RequestInvalidError, match="are not in a layout of 3 layers"):
        next(verb.flow(session))


def test_a_daemon_that_derives_another_layout_id_is_not_trusted(
    session: Session, layout: StateLayout
) -> None:
    session.registered.clear()
    flow = store_verbs.match(layout, [KEY], lease_ms=0).flow(session)
    assert isinstance(next(flow).request, session_pb2.RegisterLayoutRequest)
    with pytest.raises(RequestInvalidError, match="another id"):
        flow.send(session_pb2.RegisterLayoutReply(layout_id=b"x"))


def test_region_of_an_ended_session_never_names_bytes_of_the_next(
    session: Session, layout: StateLayout
) -> None:
    """The daemon would take its offsets as those of the new arena."""
    old = Arena(memoryview(bytearray(65536)), lambda: True).allocate(8192)
    assert old is not None
    stale = Placement.contiguous(old, layout)
    chunk = NewChunk(key=KEY, token_count=1)
    put = store_verbs.put(layout, [chunk], stale, ack=Ack.STAGED, timeout_ms=1)
    with pytest.raises(RegionStaleError):
        next(put.flow(session))
    read = store_verbs.read(
        layout,
        [KEY],
        stale,
        order=Order.TAIL_FIRST,
        first_layer=0,
        layer_count=None,
        window_bytes=0,
        timeout_ms=1,
    )
    with pytest.raises(RegionStaleError):
        next(read.flow(session))


def test_released_region_is_refused(session: Session, layout: StateLayout) -> None:
    region = session.arena.allocate(8192)
    assert region is not None
    placement = Placement.contiguous(region, layout)
    region.release()
    verb = store_verbs.put(
        layout, [NewChunk(key=KEY, token_count=1)], placement, ack=Ack.STAGED, timeout_ms=1
    )
    with pytest.raises(RegionStaleError):
        next(verb.flow(session))
