"""What the server asks of the tiers, and what it is answered."""

import math
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum

from kvstored.format.geometry import ChunkGeometry
from kvstored.store.read.placement import Placement
from kvstored.store.read.plan import Order
from kvstored.tiers.changes.change_log import ChangeSpan
from kvstored_contract.board import Board
from kvstored_contract.layout import StateLayout
from kvstored_contract.reasons import Reason

ROOM_WAIT_S = 5.0
"""The longest that an append or a flush waits for room on the devices before its deadline.

Shorter than clients wait for its answer: one that hears that a chunk found no room goes on.
"""


@dataclass(frozen=True, slots=True)
class NewChunk:
    """A complete chunk to be stored; ``parent_key`` is empty for the first of a prefix.

    ``stripe`` chooses the device (``allocator.device_for``). ``slice_bytes`` are the lengths of
    the slices where the layout has a codec, one for each layer; else it is empty. ``note`` is
    handed on to those who follow the namespace's changes.
    """

    key: bytes
    parent_key: bytes
    token_count: int
    stripe: int
    slice_bytes: tuple[int, ...] = ()
    note: bytes = b""

    def geometry(self, layout: StateLayout) -> ChunkGeometry:
        """Where its slices lie in a frame and in an extent."""
        if layout.is_encoded:
            return ChunkGeometry.of_slices(self.slice_bytes)
        return ChunkGeometry.of(layout, self.token_count)


@dataclass(frozen=True, slots=True, kw_only=True)
class PutRequest:
    """Chunks of one layout that lie in ``source`` as ``placement`` says.

    ``deadline`` is on the monotonic clock and bounds every wait for room, in DRAM and on the
    devices. The one in DRAM ends as well soon after ``is_wanted`` says no: the client is gone,
    and its arena waits.
    """

    namespace_id: bytes
    layout: StateLayout
    chunks: tuple[NewChunk, ...]
    source: memoryview
    placement: Placement
    deadline: float
    is_wanted: Callable[[], bool] = lambda: True


class PutOutcome(Enum):
    """What became of one chunk of a put; values are those of the protobuf enum."""

    STORED = 1
    EXISTED = 2
    REJECTED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PutTicket:
    """Answer for one chunk.

    ``durable`` resolves to UNSPECIFIED when the chunk survives power loss, else to the
    reason why it never will; it is None for rejected chunks.
    """

    outcome: PutOutcome
    reason: Reason = Reason.UNSPECIFIED
    durable: Future[Reason] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendItem:
    """Rows ``first_row`` on of a snapshot: tokens ``first_token`` on of one sequence.

    ``keys`` name the chunks that these tokens complete, in order.
    """

    name: str
    first_token: int
    first_row: int
    token_count: int
    keys: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendRequest:
    """A step's snapshot (``SnapshotGeometry``), which ``source`` begins with, and whose it is.

    No two items name the same sequence; every row of an item is one of ``row_count``.
    ``deadline`` is on the monotonic clock and bounds every wait.
    """

    namespace_id: bytes
    session_id: int
    layout: StateLayout
    row_count: int
    source: memoryview
    items: tuple[AppendItem, ...]
    deadline: float = math.inf


@dataclass(frozen=True, slots=True)
class AppendOutcome:
    """Length of a sequence after an append, and why it is not as long as was asked for."""

    length_tokens: int
    reason: Reason = Reason.UNSPECIFIED


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesAnswer:
    """Changes of a namespace in one epoch; ``are_stored`` tells of keys what is true after them."""

    epoch: int
    span: ChangeSpan
    are_stored: tuple[bool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """Chunks to be brought into ``arena`` as ``placement`` says, with progress on ``board``.

    ``takes_transfers`` arenas lie on huge pages (see ``ReadTarget``). ``window_bytes`` bounds
    what is in flight; 0 means the daemon's default.
    """

    namespace_id: bytes
    layout: StateLayout
    keys: tuple[bytes, ...]
    order: Order
    first_layer: int
    layer_count: int
    arena: memoryview
    takes_transfers: bool
    placement: Placement
    board: Board
    notify: Callable[[], None]
    window_bytes: int
    deadline: float


class LayoutRefusedError(ValueError):
    """A layout that this store cannot hold; the message says why."""
