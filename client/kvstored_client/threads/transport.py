"""Drives flows over a blocking gRPC channel, and waits for the daemon's reports with threads."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

import grpc
from google.protobuf.message import Message

from kvstored_client.errors import DaemonAbsentError, StoreError
from kvstored_client.session.channel import CHANNEL_OPTIONS, typed
from kvstored_client.session.limits import LOOK_INTERVAL_S
from kvstored_client.session.presence import Presence
from kvstored_client.session.session import Session
from kvstored_client.verbs.call import Call, Flow
from kvstored_contract.reasons import TOKEN_METADATA

ResultT = TypeVar("ResultT")


class Transport:
    """Calls with one session's token. Thread-safe."""

    def __init__(self, session: Session) -> None:
        self._channel = grpc.insecure_channel(session.grpc_target, options=CHANNEL_OPTIONS)
        self._metadata = ((TOKEN_METADATA, session.token),)
        self._methods: dict[str, Callable[..., Message]] = {}

    def call(self, call: Call) -> Message:
        """Sends the call and blocks until its reply; raises StoreError."""
        try:
            return self._method(call)(call.request, timeout=call.timeout_s, metadata=self._metadata)
        except grpc.RpcError as error:
            raise typed(error) from error
        except ValueError as error:
            # A channel that another thread has closed meanwhile.
            raise DaemonAbsentError(f"the session has ended: {error}") from error

    def drive(self, flow: Flow[ResultT]) -> ResultT:
        """Runs a flow to its result; raises what the flow raises."""
        try:
            call = next(flow)
            while True:
                try:
                    reply = self.call(call)
                except StoreError as error:
                    call = flow.throw(error)
                else:
                    call = flow.send(reply)
        except StopIteration as stop:
            result: ResultT = stop.value
            return result
        finally:
            flow.close()

    def close(self) -> None:
        """Frees the channel; calls in flight fail."""
        self._channel.close()

    def _method(self, call: Call) -> Callable[..., Message]:
        path = call.method.path
        if path not in self._methods:
            self._methods[path] = self._channel.unary_unary(
                path,
                request_serializer=type(call.request).SerializeToString,
                response_deserializer=call.method.reply.FromString,
            )
        return self._methods[path]


class Signal:
    """Lets many threads wait for one eventfd: one of them listens, then wakes the others.

    The daemon's reports do not say which read they belong to, so that everybody looks at
    the own board after each. Thread-safe.
    """

    def __init__(self, presence: Presence) -> None:
        self._presence = presence
        self._condition = threading.Condition()
        self._someone_listens = False

    def wait(self, settled: Callable[[], bool], deadline: float) -> bool:
        """Blocks until ``settled()`` or time.monotonic() reaches ``deadline``.

        Returns what ``settled()`` is then. It must become true when the session is lost.
        """
        while not settled():
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                return False
            self._wait_for_report(settled, min(remaining_s, LOOK_INTERVAL_S))
        return True

    def _wait_for_report(self, settled: Callable[[], bool], timeout_s: float) -> None:
        with self._condition:
            if self._someone_listens:
                # Checked under the lock: what the listener drained before is visible by
                # now, and what comes later will notify.
                if not settled():
                    self._condition.wait(timeout_s)
                return
            self._someone_listens = True
        try:
            self._presence.listen(timeout_s)
        finally:
            with self._condition:
                self._someone_listens = False
                self._condition.notify_all()
