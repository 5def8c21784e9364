"""What a store in memory does to its clients, as a test sets it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from google.protobuf.message import Message

from kvstored_client.testing.served_read import ReadFaults
from kvstored_contract.reasons import Reason


class CallName(StrEnum):
    """Every call of the contract; the names are those of ``Client.counters``."""

    REGISTER = "register"
    PING = "ping"
    PUT = "put"
    APPEND = "append"
    MATCH = "match"
    READ = "read"
    PIN = "pin"
    UNPIN = "unpin"
    DELETE = "delete"
    CHANGES = "changes"
    SEQUENCE_CREATE = "sequence_create"
    SEQUENCE_GET = "sequence_get"
    SEQUENCE_APPEND = "sequence_append"
    SEQUENCE_FORK = "sequence_fork"
    SEQUENCE_TRUNCATE_FRONT = "sequence_truncate_front"
    SEQUENCE_TRUNCATE_BACK = "sequence_truncate_back"
    """Also of ``truncate_tokens``, which is the same call."""
    SEQUENCE_FLUSH = "sequence_flush"
    SEQUENCE_DELETE = "sequence_delete"
    SEQUENCE_LIST = "sequence_list"
    SEQUENCE_HINT = "sequence_hint"
    STATS = "stats"
    LIST_CHUNKS = "list_chunks"
    INSPECT = "inspect"


def _nothing(_request: Message) -> None:
    """What happens before and after a call unless a test says otherwise."""


def _taken(_number: int, _part: object) -> Reason | None:
    return None


@dataclass(slots=True, kw_only=True)
class Faults(ReadFaults):
    """Delays, refusals and losses of one ``MemoryStore``; a test may set them at any time.

    No fault ever makes the store serve other bytes than those that were put.
    """

    arena_is_full: bool = False
    """Whether no region finds room, as if others held the whole arena. Not of a MemoryDaemon,
    whose clients manage their arenas alone."""
    session_refusal: str = ""
    """Why no new session is granted (one sentence); empty: it is."""
    delays_s: dict[CallName, float] = field(default_factory=dict)
    """How long a call takes before it is served. A longer one than the client waits is a miss."""
    refusals: dict[CallName, Reason] = field(default_factory=dict)
    """Calls that are answered with a refusal and nothing else."""
    devices_are_late: bool = False
    """Whether no device takes anything in time: durable puts and flushes are answered at their
    deadlines, at once, with what is staged. It is kept all the same."""
    silent: set[CallName] = field(default_factory=set)
    """Calls that fail without a reason, so that nobody knows how far they came."""
    before: Callable[[Message], None] = _nothing
    """Is given each request (a message of ``kvstored_protos``) before it is served, on the
    thread of the call: it may block, change the store, or kill it."""
    after: Callable[[Message], None] = _nothing
    """Is given each request when its answer is on the way to the client."""
    put_rejection: Callable[[int, int], Reason | None] = _taken
    """Why a chunk is rejected, None to take it. Is given the number of the put (from 0) and
    the chunk's place in it."""
    append_rejection: Callable[[int, str], Reason | None] = _taken
    """Why the rows of an item are dropped, None to take them. Is given the number of the
    append (from 0) and the sequence's name. STORE_FULL loses the open tail as well."""
