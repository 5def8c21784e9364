"""The kvstored SDK: store and fetch the attention state of language models on this node.

``Client`` is for threads, ``AsyncClient`` for tasks of an event loop; both have the same
verbs. A missing daemon is a miss, not an error.

In reading order: what goes into a call and comes out (``values``) and what can go wrong
(``errors``); one session with the daemon and its memory (``session``); what a client can ask
(``verbs``); the client for threads (``threads``) and the one for tasks (``aio``). Beside them: a
store in memory for tests (``testing``).
"""

from kvstored_client.aio.client import AsyncClient
from kvstored_client.aio.read import AsyncRead
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
from kvstored_client.session.options import OptionError
from kvstored_client.session.region import Region
from kvstored_client.threads.client import Client
from kvstored_client.threads.read import Read
from kvstored_client.values import (
    Ack,
    AppendItem,
    AppendReport,
    AppendResult,
    Change,
    ChangeKind,
    Changes,
    HintReport,
    NewChunk,
    Order,
    PutOutcome,
    PutReport,
    PutResult,
    QueueEntry,
    ReadReport,
    SequenceInfo,
)
from kvstored_client.verbs.lease import AsyncLease, Lease
from kvstored_client.verbs.placement import Placement
from kvstored_client.verbs.store_verbs import Match
from kvstored_contract.board import SliceState
from kvstored_contract.dtypes import is_dtype
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
    "Change",
    "ChangeKind",
    "Changes",
    "Client",
    "DaemonAbsentError",
    "DaemonFaultError",
    "DeadlineError",
    "HintReport",
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
    "QueueEntry",
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
    "is_dtype",
]
