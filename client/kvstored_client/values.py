"""What goes into a call and what comes out of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from kvstored_contract.layout import StateLayout
from kvstored_contract.limits import (
    CHUNK_TOKENS_MAX,
    KEY_BYTES,
    NOTE_BYTES_MAX,
    PLACE_MAX,
    SEQUENCE_NAME_BYTES_MAX,
)
from kvstored_contract.reasons import Reason

STRIPE_MAX = 2**64 - 1
"""What the contract has room for."""
_PARENT_KEY_BYTES = (0, KEY_BYTES)


class Ack(IntEnum):
    """When a put is answered. Values are those of the protobuf enum."""

    STAGED = 1
    """When the chunks are readable from DRAM."""
    DURABLE = 2
    """When the chunks survive power loss."""


class Order(IntEnum):
    """The order in which a read brings its slices. Values are those of the protobuf enum."""

    TAIL_FIRST = 1
    """Last chunk first, each chunk whole."""
    LAYER_FIRST = 2
    """Layer by layer over all chunks."""
    HEAD_FIRST = 3
    """First chunk first, each chunk whole."""


class PutOutcome(IntEnum):
    """What became of one chunk of a put. Values are those of the protobuf enum."""

    STORED = 1
    EXISTED = 2
    """The key was stored before; the bytes of this call were not used."""
    REJECTED = 3
    STAGED = 4
    """Only for ``Ack.DURABLE``: readable, but not durable when the time was over. The chunk
    becomes so after the answer unless its device fails; the next durable put of its key waits
    for that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewChunk:
    """One chunk to store.

    ``key`` has 32 bytes; ``parent_key`` is that of the chunk before it, empty for the first
    and for independent chunks. ``token_count`` is at most the layout's ``chunk_tokens``.
    ``stripe`` chooses the device: consecutive chunks of a sequence should have
    consecutive numbers, whichever call puts them; None is the position in the call.
    ``slice_bytes`` are the lengths of the slices, one for each layer, where the layout has
    a codec: as many bytes of each are stored. Else it is empty. ``note`` (at most 32 KiB, 2 MiB
    in one put) is handed to those who follow the changes of the namespace; the daemon does not
    store it, and forgets it where the chunk was there before. Raises ValueError.
    """

    key: bytes
    token_count: int
    parent_key: bytes = b""
    stripe: int | None = None
    slice_bytes: Sequence[int] = ()
    note: bytes = b""

    def __post_init__(self) -> None:
        # One condition for all: a put may have ten thousand of them.
        if not (
            len(self.key) == KEY_BYTES
            and len(self.parent_key) in _PARENT_KEY_BYTES
            and 0 < self.token_count <= CHUNK_TOKENS_MAX
            and (self.stripe is None or 0 <= self.stripe <= STRIPE_MAX)
            and (not self.slice_bytes or min(self.slice_bytes) >= 0)
            and len(self.note) <= NOTE_BYTES_MAX
        ):
            raise ValueError(self._problem())

    def _problem(self) -> str:
        if len(self.key) != KEY_BYTES:
            return f"the key of a chunk has {len(self.key)} bytes; it must have {KEY_BYTES}"
        if len(self.parent_key) not in _PARENT_KEY_BYTES:
            return (
                f"the parent key of a chunk has {len(self.parent_key)} bytes; it must have "
                f"{KEY_BYTES}, or none for the first chunk"
            )
        if not 0 < self.token_count <= CHUNK_TOKENS_MAX:
            return f"token_count is {self.token_count}; it must be 1 to {CHUNK_TOKENS_MAX}"
        if self.stripe is not None and not 0 <= self.stripe <= STRIPE_MAX:
            return f"stripe is {self.stripe}; it must be 0 to {STRIPE_MAX}"
        if len(self.note) > NOTE_BYTES_MAX:
            return f"the note of a chunk has {len(self.note)} bytes; at most {NOTE_BYTES_MAX}"
        return f"a slice has {min(self.slice_bytes)} bytes; a length must not be negative"


@dataclass(frozen=True, slots=True)
class PutResult:
    """What became of one chunk; ``reason`` says why it was rejected or is only STAGED."""

    outcome: PutOutcome
    reason: Reason = Reason.UNSPECIFIED


@dataclass(frozen=True, slots=True)
class PutReport:
    """One result for each chunk of the put, in the put's order.

    What a put with ``Ack.DURABLE`` counts as stored or existed survives power loss.
    """

    results: tuple[PutResult, ...]

    def count(self, outcome: PutOutcome) -> int:
        """Chunks with this outcome."""
        return sum(result.outcome is outcome for result in self.results)

    @property
    def stored_count(self) -> int:
        """Chunks that this put stored."""
        return self.count(PutOutcome.STORED)

    @property
    def existed_count(self) -> int:
        """Chunks that had been stored before."""
        return self.count(PutOutcome.EXISTED)

    @property
    def staged_count(self) -> int:
        """Chunks that are readable but were not durable in time, as was asked for."""
        return self.count(PutOutcome.STAGED)

    @property
    def rejected_count(self) -> int:
        """Chunks that are not stored."""
        return self.count(PutOutcome.REJECTED)


class ChangeKind(IntEnum):
    """What happened to a chunk. Values are those of the protobuf enum."""

    STORED = 1
    """It can be read from now on."""
    REMOVED = 2
    """It cannot be read any more, wherever it was."""


@dataclass(frozen=True, slots=True)
class Change:
    """A chunk (its key, 32 bytes) that came or went; ``note`` is what was put with it."""

    kind: ChangeKind
    key: bytes
    note: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What came and went in the namespace, in this order; of all salts and layouts.

    ``epoch`` and ``last_sequence`` are the place after it. When ``is_lost`` is set, the daemon
    does not know everything that happened after the place it was asked for, as after its
    restart: any chunk may be gone, and ``changes`` are all that it still knows. With
    ``has_more`` there is more to ask for at once. A removal may come twice, or for a
    chunk that was stored again meanwhile. ``are_stored`` tells of each key that was asked
    for whether its chunk could be read after these changes.
    """

    epoch: int
    last_sequence: int
    changes: tuple[Change, ...]
    is_lost: bool
    has_more: bool
    are_stored: tuple[bool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendItem:
    """Rows of a snapshot that are consecutive tokens of one sequence.

    Rows ``first_row`` on of the snapshot are the tokens from position ``first_token`` on,
    which must be the sequence's length, counted from its front as it is now. ``keys`` (32
    bytes each) are those of the chunks that these tokens complete, in order. Raises ValueError.
    """

    sequence: str
    first_token: int
    first_row: int
    token_count: int
    keys: Sequence[bytes] = ()

    def __post_init__(self) -> None:
        _check_name(self.sequence)
        if self.first_token < 0 or self.first_row < 0 or self.token_count < 1:
            raise ValueError(
                f"an item appends {self.token_count} tokens from token {self.first_token} and row "
                f"{self.first_row} on; it appends at least 1, and neither begins before 0"
            )
        for key in self.keys:
            _check_key(key, "an item")


@dataclass(frozen=True, slots=True)
class AppendResult:
    """Length of one sequence after the append.

    ``reason`` says why it is shorter than asked for: DRAM_FULL (its rows were dropped and
    it is stopped there), SEQUENCE_CONFLICT (``first_token`` is not its length, or
    another client has appended to its open tail and not flushed it),
    SEQUENCE_UNKNOWN, DEADLINE (somebody else was changing it all the time), or why a complete
    chunk could not be stored. What follows must be appended at ``length_tokens``.
    """

    length_tokens: int
    reason: Reason = Reason.UNSPECIFIED

    @property
    def is_taken(self) -> bool:
        """Whether all rows of the item were taken."""
        return self.reason is Reason.UNSPECIFIED


@dataclass(frozen=True, slots=True)
class AppendReport:
    """One result for each item of the append, in its order.

    ``is_served`` is False when the call failed: then the lengths are unknown and 0 here, and
    the reason is INTERNAL where the daemon gave none.
    """

    results: tuple[AppendResult, ...]
    is_served: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadReport:
    """How far a read came.

    ``resident`` tells of each chunk whether every layer of the read lies verified at its
    destination, ``resident_prefix`` how many leading chunks do. ``finished`` means that
    nothing will change any more and that the destination belongs to the engine again.
    """

    resident: tuple[bool, ...]
    resident_prefix: int
    device_bytes: int
    dram_bytes: int
    finished: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueEntry:
    """A request that waits in the engine's queue; the smallest ``place`` runs first.

    ``name`` is that of a sequence, whose chunks the request will read. With ``keys`` (32 bytes
    each, in the order of its tokens), which name chunks of ``layout``, it is any name. Places
    need not follow each other, so that nobody moves when the head leaves. Raises ValueError.
    """

    name: str
    place: int
    keys: Sequence[bytes] = ()
    layout: StateLayout | None = None

    def __post_init__(self) -> None:
        _check_name(self.name)
        if not 0 <= self.place <= PLACE_MAX:
            raise ValueError(f"a place is 0 to {PLACE_MAX}, not {self.place}")
        for key in self.keys:
            _check_key(key, "an entry of the queue")


@dataclass(frozen=True, slots=True)
class HintReport:
    """Whether a change of the queue was taken, and the version that the daemon knows now.

    What was not taken is older than that, or a change before it is missing: the whole queue
    under a larger version is taken then. ``ignored`` names wait for nothing: there is no such
    sequence, or no room for what it names.
    """

    is_taken: bool
    version: int
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceInfo:
    """A named list of chunk keys with an open tail.

    ``keys`` name chunks that are durable, and none before them is not; ``dropped_chunks``
    were truncated from its front. ``tail_key`` names the short chunk that a flush left
    behind them, of ``durable_tail_tokens`` tokens; it is empty when there is none.

    ``staged_tokens`` is the sequence's length, of which ``tail_tokens`` lie behind its last
    complete chunk; ``durable_tokens`` of it are left after a restart of the daemon. The
    counts are 0 while the daemon does not know the layout. ``is_stopped`` tells that rows
    after its end were dropped. ``is_ephemeral`` sequences end with the session.

    ``reason`` is DEADLINE after a flush that could not make everything durable in time:
    ``durable_tokens`` are, and the chunks after them become so without another call, the open
    tail with the next flush.
    """

    name: str
    layout_id: bytes
    keys: tuple[bytes, ...]
    dropped_chunks: int
    tail_key: bytes = b""
    durable_tail_tokens: int = 0
    tail_tokens: int = 0
    staged_tokens: int = 0
    durable_tokens: int = 0
    is_stopped: bool = False
    is_ephemeral: bool = False
    reason: Reason = Reason.UNSPECIFIED


def _check_name(name: str) -> None:
    if not 0 < len(name.encode()) <= SEQUENCE_NAME_BYTES_MAX:
        raise ValueError(
            f"the name of a sequence has {len(name.encode())} bytes; it must have 1 to "
            f"{SEQUENCE_NAME_BYTES_MAX}"
        )


def _check_key(key: bytes, owner: str) -> None:
    if len(key) != KEY_BYTES:
        raise ValueError(f"a key of {owner} has {len(key)} bytes; it must have {KEY_BYTES}")
