"""How requests come in."""

import asyncio
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import Descriptor

from kvstored.server import admission, session
from kvstored.server.admission import INLINE_BYTES_MAX
from kvstored.server.errors import RefusedError, refusal_of
from kvstored.server.message_parts import message_parts
from kvstored_contract.limits import GRPC_MESSAGE_BYTES_MAX
from kvstored_contract.reasons import TOKEN_METADATA, Reason
from kvstored_protos.v1 import sequence_pb2, store_pb2
from tests.kvstored.server.caller import LAYOUT, Caller, match, reason_of, told_reason
from tests.support.waiting import PATIENCE_S, until

METHOD = "/kvstored.v1.StoreService/Match"
TOO_LARGE = bytes(GRPC_MESSAGE_BYTES_MAX + 1)


def call(caller: Caller, token: str, body: bytes) -> "grpc.aio.UnaryUnaryCall[bytes, bytes]":
    method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = caller.peer.channel.unary_unary(METHOD)
    return method(body, metadata=((TOKEN_METADATA, token),))


def stream(caller: Caller) -> "grpc.aio.StreamUnaryCall[Any, Any]":
    """A call of a unary method whose message does not come by itself."""
    return caller.peer.channel.stream_unary(METHOD)(metadata=caller.peer.metadata)


async def test_the_token_is_looked_at_before_the_message_is_received(caller: Caller) -> None:
    """Bug: a process that reached the socket could have the daemon receive 8 MiB in each call.

    Fails when methods are served as unary ones (seen: gRPC's own answer, which has no reason).
    """
    assert await reason_of(call(caller, "nobody's", TOO_LARGE)) is Reason.TOKEN_UNKNOWN
    with pytest.raises(grpc.aio.AioRpcError) as info:
        await call(caller, caller.peer.welcome.token, TOO_LARGE)
    assert info.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    await match(caller, [])


async def test_every_call_is_timed_by_its_verb_and_a_refused_one_counts_as_such(
    caller: Caller,
) -> None:
    await match(caller, [])
    assert await reason_of(call(caller, "nobody's", b"")) is Reason.TOKEN_UNKNOWN
    await until(lambda: sum(caller.served.latencies.times()["Match"].counts) == 2)
    times = caller.served.latencies.times()
    assert set(times) == {"RegisterLayout", "Match"}
    assert times["Match"].refused_count == 1
    assert times["Match"].sum_s > 0


async def test_a_call_without_a_message_is_refused(caller: Caller) -> None:
    empty = stream(caller)
    await empty.done_writing()
    with pytest.raises(grpc.aio.AioRpcError) as info:
        await empty
    assert told_reason(info.value) == Reason.FIELD_INVALID.name
    # The answer may be here before the daemon's loop hears that it was sent.
    await until(lambda: caller.served.call_count == 0)


async def test_a_message_is_not_awaited_for_ever(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: a call without its message was in progress until its client ended it."""
    with monkeypatch.context() as patch:
        patch.setattr(admission, "MESSAGE_TIMEOUT_S", 0.05)
        late = stream(caller)
        with pytest.raises(grpc.aio.AioRpcError) as info:
            async with asyncio.timeout(PATIENCE_S):
                await late
        assert told_reason(info.value) == Reason.DEADLINE.name
        await until(lambda: caller.served.call_count == 0)
    # A message that does come may take longer than that on a busy machine.
    await match(caller, [])


async def test_a_call_counts_while_its_message_is_awaited(caller: Caller) -> None:
    """Else one client could hold every call that the server takes, and be refused none."""
    late = [stream(caller) for _ in range(3)]
    await until(lambda: caller.served.call_count == 3)
    await late[0].write(store_pb2.MatchRequest(layout_id=LAYOUT.layout_id).SerializeToString())
    assert await late[0] == b""
    await until(lambda: caller.served.call_count == 2)
    for given_up in late[1:]:
        given_up.cancel()
    await until(lambda: caller.served.call_count == 0)


LARGE = [number.to_bytes(32, "big") for number in range(2 * INLINE_BYTES_MAX // 32)]
"""Keys of a message that is not decoded on the event loop."""


async def test_the_event_loop_decoded_the_largest_messages(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: all others waited while it decoded 8 MiB, and 140 ms where these were all numbers."""
    threads: list[tuple[int, str]] = []

    def seen(body: bytes, descriptor: Descriptor) -> Iterator[bytes]:
        for part in message_parts(body, descriptor):
            threads.append((len(part), threading.current_thread().name))
            yield part

    with monkeypatch.context() as patch:
        patch.setattr(admission, "message_parts", seen)
        await match(caller, LARGE[:4])
        assert threads == []
        await match(caller, LARGE)
    assert len(threads) > 1
    assert all(name.startswith("kvstored-call") for _, name in threads)
    assert max(size for size, _ in threads) <= INLINE_BYTES_MAX + 64


async def test_calls_of_a_session_go_on_in_their_order(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small call that comes after a large one is not decoded, so not served, before it."""
    begun, go_on = threading.Event(), threading.Event()
    received: list[int] = []
    decoded: list[int] = []
    decode = admission._decoded

    def held(body: bytes, descriptor: Descriptor) -> Iterator[bytes]:
        begun.set()
        assert go_on.wait(PATIENCE_S)
        yield from message_parts(body, descriptor)

    async def noted(body: bytes, *rest: Any) -> Any:
        received.append(len(body))
        message = await decode(body, *rest)
        decoded.append(len(body))
        return message

    with monkeypatch.context() as patch:
        patch.setattr(admission, "message_parts", held)
        patch.setattr(admission, "_decoded", noted)
        large = asyncio.create_task(match(caller, LARGE))
        await until(begun.is_set)
        small = asyncio.create_task(match(caller, LARGE[:1]))
        try:
            # What would not wait is decoded in the same step of the loop.
            await until(lambda: len(received) == 2)
            assert decoded == []
        finally:
            go_on.set()
            await asyncio.gather(large, small)
    assert decoded == received


async def test_messages_that_waited_took_all_memory(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: each of 512 calls could keep its message for as long as it waited for a thread."""
    begun, go_on = threading.Event(), threading.Event()

    def held(body: bytes, descriptor: Descriptor) -> Iterator[bytes]:
        begun.set()
        assert go_on.wait(PATIENCE_S)
        yield from message_parts(body, descriptor)

    size = len(store_pb2.MatchRequest(keys=LARGE).SerializeToString())
    with monkeypatch.context() as patch:
        patch.setattr(admission, "message_parts", held)
        patch.setattr(session, "MESSAGE_BYTES_PER_SESSION_MAX", 3 * size)
        waiting = [asyncio.create_task(match(caller, LARGE)) for _ in range(2)]
        await until(begun.is_set)
        try:
            refused = [match(caller, LARGE) for _ in range(3)]
            reasons = [await reason_of(one) for one in refused]
            assert reasons == [Reason.LIMIT_EXCEEDED] * 3
        finally:
            go_on.set()
            await asyncio.gather(*waiting)
        await match(caller, LARGE)


async def test_a_large_body_that_is_no_message_is_refused(caller: Caller) -> None:
    broken = call(caller, caller.peer.welcome.token, b"\x0b" * (INLINE_BYTES_MAX + 1))
    assert await reason_of(broken) is Reason.FIELD_INVALID


class FaultError(RuntimeError):
    """One to which references can be weak."""


REFUSED: dict[str, Callable[[Caller], Awaitable[object]]] = {
    "layout": lambda caller: caller.store.Match(
        store_pb2.MatchRequest(layout_id=bytes(16)), metadata=caller.peer.metadata
    ),
    "read": lambda caller: caller.store.Read(
        caller.read_request([bytes(32)], board_offset=1), metadata=caller.peer.metadata
    ),
    "thread": lambda caller: caller.sequences.Get(
        sequence_pb2.SequenceRequest(name="unknown"), metadata=caller.peer.metadata
    ),
    "token": lambda caller: call(caller, "nobody's", b""),
    "message": lambda caller: call(caller, caller.peer.welcome.token, b"no message"),
    "fault": lambda caller: match(caller, [bytes(32)]),
}


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize("kind", REFUSED)
async def test_a_refused_call_stayed_until_a_collection_that_hardly_ever_comes(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Bug: gRPC keeps the error that ends a call, whose frames kept gRPC's context of the call.

    With each went the message, the session and what these had. Memory grew for as long as a daemon
    refused calls.
    """
    errors: list[weakref.ref[Exception]] = []

    def noted(error: Exception) -> RefusedError | None:
        errors.append(weakref.ref(error))
        return refusal_of(error)

    monkeypatch.setattr(admission, "refusal_of", noted)
    # What is logged is kept by those who look at the log after a test.
    monkeypatch.setattr(admission.LOGGER, "disabled", True)
    caller.served.store.failure = FaultError("a fault") if kind == "fault" else None
    await reason_of(REFUSED[kind](caller))
    caller.served.store.failure = None
    # gRPC's loop has the last call that it took.
    await match(caller, [])
    assert len(errors) == 1
    await until(lambda: errors[0]() is None)
