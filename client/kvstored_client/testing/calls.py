"""Every method of the contract with the function that serves it in memory."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from google.protobuf.message import Message

from kvstored_client.testing import admin_calls, hint_call, sequence_calls, store_calls
from kvstored_client.testing.faults import CallName
from kvstored_client.verbs import methods
from kvstored_protos.v1 import admin_pb2, sequence_pb2, session_pb2, store_pb2

Serve = Callable[[Any, Any, Any], Message]


class ServedCall(NamedTuple):
    """A method: its name, what it is asked with, and what serves it."""

    name: CallName
    request: type[Message]
    serve: Serve


_SEQUENCE = sequence_pb2.SequenceRequest
_TRUNCATE = sequence_pb2.TruncateSequenceRequest
PING_PATH: Final = "/kvstored.v1.SessionService/Ping"

SERVED_CALLS: Final[dict[str, ServedCall]] = {
    methods.REGISTER_LAYOUT.path: ServedCall(
        CallName.REGISTER, session_pb2.RegisterLayoutRequest, admin_calls.register
    ),
    PING_PATH: ServedCall(CallName.PING, session_pb2.PingRequest, admin_calls.ping),
    methods.PUT.path: ServedCall(CallName.PUT, store_pb2.PutRequest, store_calls.put),
    methods.APPEND.path: ServedCall(
        CallName.APPEND, store_pb2.AppendRequest, sequence_calls.append
    ),
    methods.MATCH.path: ServedCall(CallName.MATCH, store_pb2.MatchRequest, store_calls.match),
    methods.READ.path: ServedCall(CallName.READ, store_pb2.ReadRequest, store_calls.read),
    methods.PIN.path: ServedCall(CallName.PIN, store_pb2.PinRequest, store_calls.pin),
    methods.UNPIN.path: ServedCall(CallName.UNPIN, store_pb2.UnpinRequest, store_calls.unpin),
    methods.DELETE.path: ServedCall(CallName.DELETE, store_pb2.DeleteRequest, store_calls.delete),
    methods.CHANGES.path: ServedCall(
        CallName.CHANGES, store_pb2.ChangesRequest, store_calls.changes
    ),
    methods.SEQUENCE_CREATE.path: ServedCall(
        CallName.SEQUENCE_CREATE, sequence_pb2.CreateSequenceRequest, sequence_calls.create
    ),
    methods.SEQUENCE_GET.path: ServedCall(CallName.SEQUENCE_GET, _SEQUENCE, sequence_calls.get),
    methods.SEQUENCE_APPEND.path: ServedCall(
        CallName.SEQUENCE_APPEND, sequence_pb2.AppendChunksRequest, sequence_calls.append_chunks
    ),
    methods.SEQUENCE_FORK.path: ServedCall(
        CallName.SEQUENCE_FORK, sequence_pb2.ForkSequenceRequest, sequence_calls.fork
    ),
    methods.SEQUENCE_TRUNCATE_FRONT.path: ServedCall(
        CallName.SEQUENCE_TRUNCATE_FRONT, _TRUNCATE, sequence_calls.truncate_front
    ),
    methods.SEQUENCE_TRUNCATE_BACK.path: ServedCall(
        CallName.SEQUENCE_TRUNCATE_BACK, _TRUNCATE, sequence_calls.truncate_back
    ),
    methods.SEQUENCE_FLUSH.path: ServedCall(
        CallName.SEQUENCE_FLUSH, sequence_pb2.FlushSequenceRequest, sequence_calls.flush
    ),
    methods.SEQUENCE_DELETE.path: ServedCall(
        CallName.SEQUENCE_DELETE, _SEQUENCE, sequence_calls.delete
    ),
    methods.SEQUENCE_LIST.path: ServedCall(
        CallName.SEQUENCE_LIST, sequence_pb2.ListSequencesRequest, sequence_calls.list_names
    ),
    methods.SEQUENCE_HINT.path: ServedCall(
        CallName.SEQUENCE_HINT, sequence_pb2.HintRequest, hint_call.hint
    ),
    methods.STATS.path: ServedCall(CallName.STATS, admin_pb2.StatsRequest, admin_calls.stats),
    methods.LIST_CHUNKS.path: ServedCall(
        CallName.LIST_CHUNKS, admin_pb2.ListChunksRequest, admin_calls.list_chunks
    ),
    methods.INSPECT.path: ServedCall(
        CallName.INSPECT, admin_pb2.InspectRequest, admin_calls.inspect
    ),
}
