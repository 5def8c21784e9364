"""A child process that makes the largest calls that the contract allows, without pause."""

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc

from benchmarks.storage.fairness import ARENA_BYTES
from kvstored_client import LayerState, StateKind, StateLayout
from kvstored_client.session.options import Options
from kvstored_client.session.session import Session, open_session
from kvstored_contract.limits import BLOCKS_PER_CALL_MAX, CHUNKS_PER_CALL_MAX, KEY_BYTES
from kvstored_contract.reasons import TOKEN_METADATA
from kvstored_protos.v1 import common_pb2, session_pb2, store_pb2

BLOCKS_PER_SLICE = 4096
THREADS = 2
"""Calls of each kind in flight, so that one is always with the daemon."""
CALL_TIMEOUT_S = 60.0
LAYOUT = StateLayout(
    model="greedy", dtype="float32", layers=(LayerState(StateKind.HIDDEN, 4096),), chunk_tokens=64
)
"""A slice is cut into ``BLOCKS_PER_SLICE`` pieces of 64 bytes."""
SHORT = StateLayout(
    model="greedy", dtype="float32", layers=(LayerState(StateKind.HIDDEN, 16),), chunk_tokens=1
)
"""Chunks of a page each."""
READ_KEYS = [number.to_bytes(KEY_BYTES, "big") for number in range(64)]
"""Of what is read: as many chunks as have BLOCKS_PER_CALL_MAX pieces together."""
PUT_AT_ONCE = 8
"""Chunks that the arena has room for."""
_SERVICE = "/kvstored.v1.StoreService/"


def largest_calls() -> dict[str, tuple[str, bytes]]:
    """Method and body of each kind of call."""
    keys = [number.to_bytes(KEY_BYTES, "big") for number in range(CHUNKS_PER_CALL_MAX)]
    read = store_pb2.ReadRequest(
        layout_id=LAYOUT.layout_id,
        keys=READ_KEYS,
        order=store_pb2.ORDER_TAIL_FIRST,
        layer_count=1,
        destination=common_pb2.Placement(
            block_offsets=[
                number * 64 % (ARENA_BYTES // 2) for number in range(BLOCKS_PER_CALL_MAX)
            ]
        ),
        board_offset=ARENA_BYTES // 2 + 64,
        deadline_ms=1000,
    )
    put = store_pb2.PutRequest(
        layout_id=SHORT.layout_id,
        chunks=[store_pb2.PutChunk(key=key, token_count=1) for key in keys],
        source=common_pb2.Placement(layer_stride=4096),
        ack=store_pb2.ACK_STAGED,
        deadline_ms=1000,
    )
    pin = store_pb2.PinRequest(layout_id=SHORT.layout_id, keys=keys, lease_ms=1)
    match = store_pb2.MatchRequest(layout_id=SHORT.layout_id, keys=keys)
    return {
        "read": (_SERVICE + "Read", read.SerializeToString()),
        "put": (_SERVICE + "Put", put.SerializeToString()),
        "pin": (_SERVICE + "Pin", pin.SerializeToString()),
        "match": (_SERVICE + "Match", match.SerializeToString()),
    }


class Greedy:
    """One session and the threads that use it up."""

    def __init__(self, socket: str) -> None:
        self._session: Session = open_session(
            Options(socket=Path(socket), arena_bytes=ARENA_BYTES, name="greedy")
        )
        self._channel = grpc.insecure_channel(self._session.grpc_target)
        self._metadata = ((TOKEN_METADATA, self._session.token),)
        self._bodies = largest_calls()
        self._stop = threading.Event()
        self._counts: list[int] = []
        self._threads: list[threading.Thread] = []
        self._errors: list[Exception] = []
        for layout in (LAYOUT, SHORT):
            body = session_pb2.RegisterLayoutRequest(layout=layout.to_proto()).SerializeToString()
            self._method("/kvstored.v1.SessionService/RegisterLayout")(body)
        for first in range(0, len(READ_KEYS), PUT_AT_ONCE):
            self._store(READ_KEYS[first : first + PUT_AT_ONCE])

    def begin(self, kinds: list[str]) -> None:
        """Makes calls of each kind from now on."""
        self._stop.clear()
        self._counts = [0] * (len(kinds) * THREADS)
        self._threads = [
            threading.Thread(target=self._call_on, args=(number, *self._bodies[kind]))
            for number, kind in enumerate(kinds * THREADS)
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> int:
        """Stops, and says how many calls were answered."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]
        return sum(self._counts)

    def close(self) -> None:
        """Ends the session."""
        self._channel.close()
        self._session.presence.end()

    def _call_on(self, number: int, method: str, body: bytes) -> None:
        call = self._method(method)
        while not self._stop.is_set():
            try:
                call(body)
            except grpc.RpcError as error:
                # One that waited for the others until its deadline was a large call, too.
                if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                    # Fewer calls from here on: no result.
                    self._errors.append(error)
                    return
            self._counts[number] += 1

    def _store(self, keys: list[bytes]) -> None:
        """What is read later; the bytes are those of the arena."""
        chunk_bytes = LAYOUT.chunk_bytes()
        put = store_pb2.PutRequest(
            layout_id=LAYOUT.layout_id,
            chunks=[store_pb2.PutChunk(key=key, token_count=LAYOUT.chunk_tokens) for key in keys],
            source=common_pb2.Placement(layer_stride=chunk_bytes, chunk_stride=chunk_bytes),
            ack=store_pb2.ACK_DURABLE,
            deadline_ms=8000,
        )
        reply = self._method(_SERVICE + "Put")(put.SerializeToString())
        outcomes = {result.outcome for result in store_pb2.PutReply.FromString(reply).results}
        if not outcomes <= {store_pb2.PUT_OUTCOME_STORED, store_pb2.PUT_OUTCOME_EXISTED}:
            raise RuntimeError("the chunks that are to be read could not be stored")

    def _method(self, path: str) -> Callable[[bytes], bytes]:
        unary: Callable[..., bytes] = self._channel.unary_unary(path)

        def call(body: bytes) -> bytes:
            return unary(body, metadata=self._metadata, timeout=CALL_TIMEOUT_S)

        return call


def main() -> None:
    """Answers lines of JSON: connect, begin, end, close."""
    greedy: Greedy | None = None
    for line in sys.stdin:
        message = json.loads(line)
        verb, arguments = message["verb"], message["arguments"]
        result: Any = None
        if verb == "connect":
            greedy = Greedy(**arguments)
        else:
            assert greedy is not None
            result = getattr(greedy, verb)(**arguments)
        sys.stdout.write(json.dumps({"result": result}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
