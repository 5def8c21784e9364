"""The methods of the contract's services."""

from typing import Final

from kvstored_client.verbs.call import Method
from kvstored_protos.v1 import admin_pb2, sequence_pb2, session_pb2, store_pb2

REGISTER_LAYOUT: Final = Method(
    "/kvstored.v1.SessionService/RegisterLayout", session_pb2.RegisterLayoutReply
)

PUT: Final = Method("/kvstored.v1.StoreService/Put", store_pb2.PutReply)
APPEND: Final = Method("/kvstored.v1.StoreService/Append", store_pb2.AppendReply)
MATCH: Final = Method("/kvstored.v1.StoreService/Match", store_pb2.MatchReply)
READ: Final = Method("/kvstored.v1.StoreService/Read", store_pb2.ReadReply)
PIN: Final = Method("/kvstored.v1.StoreService/Pin", store_pb2.PinReply)
UNPIN: Final = Method("/kvstored.v1.StoreService/Unpin", store_pb2.UnpinReply)
DELETE: Final = Method("/kvstored.v1.StoreService/Delete", store_pb2.DeleteReply)
CHANGES: Final = Method("/kvstored.v1.StoreService/Changes", store_pb2.ChangesReply)

SEQUENCE_CREATE: Final = Method("/kvstored.v1.SequenceService/Create", sequence_pb2.Sequence)
SEQUENCE_GET: Final = Method("/kvstored.v1.SequenceService/Get", sequence_pb2.Sequence)
SEQUENCE_APPEND: Final = Method("/kvstored.v1.SequenceService/AppendChunks", sequence_pb2.Sequence)
SEQUENCE_FORK: Final = Method("/kvstored.v1.SequenceService/Fork", sequence_pb2.Sequence)
SEQUENCE_TRUNCATE_FRONT: Final = Method(
    "/kvstored.v1.SequenceService/TruncateFront", sequence_pb2.Sequence
)
SEQUENCE_TRUNCATE_BACK: Final = Method(
    "/kvstored.v1.SequenceService/TruncateBack", sequence_pb2.Sequence
)
SEQUENCE_FLUSH: Final = Method("/kvstored.v1.SequenceService/Flush", sequence_pb2.Sequence)
SEQUENCE_DELETE: Final = Method(
    "/kvstored.v1.SequenceService/Delete", sequence_pb2.DeleteSequenceReply
)
SEQUENCE_LIST: Final = Method("/kvstored.v1.SequenceService/List", sequence_pb2.ListSequencesReply)
SEQUENCE_HINT: Final = Method("/kvstored.v1.SequenceService/Hint", sequence_pb2.HintReply)

STATS: Final = Method("/kvstored.v1.AdminService/Stats", admin_pb2.StatsReply)
LIST_CHUNKS: Final = Method("/kvstored.v1.AdminService/ListChunks", admin_pb2.ListChunksReply)
INSPECT: Final = Method("/kvstored.v1.AdminService/Inspect", admin_pb2.InspectReply)
