"""The kvstored SDK: store and fetch the attention state of language models on this node.

``Client`` is for threads, ``AsyncClient`` for tasks of an event loop; both have the same
verbs. A missing daemon is a miss, not an error.
"""

from kvstored_client.aio import AsyncClient
from kvstored_client.aio_read import AsyncRead
from kvstored_client.client import Client
from kvstored_client.errors import (
    ArenaFullError,
    DaemonAbsentError,
    DaemonFaultError,
    DeadlineError,
    LayoutRefusedError,
    LeaseUnknownError,
    LimitExceededError,
    NoRoomError,
    NotAdminError,
    RegionStaleError,
    RequestInvalidError,
    SequenceConflictError,
    SequenceExistsError,
    SequenceUnknownError,
    SessionRefusedError,
    StoreError,
)
from kvstored_client.lease import AsyncLease, Lease
from kvstored_client.options import OptionError
from kvstored_client.placement import Placement
from kvstored_client.read import Read
from kvstored_client.region import Region
from kvstored_client.store_verbs import Match
from kvstored_client.values import (
    Ack,
    AppendItem,
    AppendReport,
    AppendResult,
    NewChunk,
    Order,
    PutOutcome,
    PutReport,
    PutResult,
    ReadReport,
    SequenceInfo,
)
from kvstored_contract.board import SliceState
from kvstored_contract.keys import independent_key
from kvstored_contract.layout import (
    RAW,
    LayerState,
    LayoutError,
    Rotary,
    Shard,
    StateKind,
    StateLayout,
)
from kvstored_contract.reasons import Reason
from kvstored_contract.snapshot import SnapshotGeometry

__all__ = [
    "RAW",
    "Ack",
    "AppendItem",
    "AppendReport",
    "AppendResult",
    "ArenaFullError",
    "AsyncClient",
    "AsyncLease",
    "AsyncRead",
    "Client",
    "DaemonAbsentError",
    "DaemonFaultError",
    "DeadlineError",
    "LayerState",
    "LayoutError",
    "LayoutRefusedError",
    "Lease",
    "LeaseUnknownError",
    "LimitExceededError",
    "Match",
    "NewChunk",
    "NoRoomError",
    "NotAdminError",
    "OptionError",
    "Order",
    "Placement",
    "PutOutcome",
    "PutReport",
    "PutResult",
    "Read",
    "ReadReport",
    "Reason",
    "Region",
    "RegionStaleError",
    "RequestInvalidError",
    "Rotary",
    "SequenceConflictError",
    "SequenceExistsError",
    "SequenceInfo",
    "SequenceUnknownError",
    "SessionRefusedError",
    "Shard",
    "SliceState",
    "SnapshotGeometry",
    "StateKind",
    "StateLayout",
    "StoreError",
    "independent_key",
]
