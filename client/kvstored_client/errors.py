"""What can go wrong, typed by what a caller can do about it."""

from collections.abc import Iterable

import grpc

from kvstored_contract.reasons import REASON_METADATA, Reason


class StoreError(Exception):
    """The daemon did not serve a call.

    ``reason`` is the daemon's, UNSPECIFIED when it gave none. ``refused`` tells that
    the daemon itself answered: then it touches the arena no more on behalf of the
    call. Otherwise nobody knows how far the call came.
    """

    def __init__(
        self, message: str, *, reason: Reason = Reason.UNSPECIFIED, refused: bool = False
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.refused = refused


class DaemonAbsentError(StoreError):
    """No daemon listens, it went away, or it is shutting down. Try again later."""


class SessionRefusedError(StoreError):
    """The daemon refused the session; the message is its reason."""


class DeadlineError(StoreError):
    """The deadline passed before the daemon was done."""


class LayoutRefusedError(StoreError):
    """The daemon cannot store states of this layout."""


class RequestInvalidError(StoreError):
    """A field of the request has a value that no daemon accepts: a fault of the caller."""


class LimitExceededError(StoreError):
    """A named limit would be exceeded; ask for less."""


class NoRoomError(StoreError):
    """The daemon's memory or its devices are full."""


class ArenaFullError(NoRoomError):
    """The arena has no free stretch so large; release a region or ask for a larger arena."""


class RegionStaleError(StoreError):
    """A region of the call was released, or its session has ended; allocate another."""


class SequenceExistsError(StoreError):
    """A sequence of this name exists."""


class SequenceUnknownError(StoreError):
    """No sequence has this name."""


class SequenceConflictError(StoreError):
    """The sequence has another length than expected: somebody else changed it."""


class LeaseUnknownError(StoreError):
    """The lease has expired or was released."""


class NotAdminError(StoreError):
    """The caller's Unix user may not use the admin service."""


class DaemonFaultError(StoreError):
    """The daemon, a device of it, or its answer is at fault."""


_BY_REASON: dict[Reason, type[StoreError]] = {
    Reason.TOKEN_UNKNOWN: DaemonAbsentError,
    Reason.NOT_ADMIN: NotAdminError,
    Reason.LAYOUT_UNKNOWN: LayoutRefusedError,
    Reason.LAYOUT_INVALID: LayoutRefusedError,
    Reason.ARENA_RANGE: RequestInvalidError,
    Reason.FIELD_INVALID: RequestInvalidError,
    Reason.LIMIT_EXCEEDED: LimitExceededError,
    Reason.DRAM_FULL: NoRoomError,
    Reason.STORE_FULL: NoRoomError,
    Reason.SEQUENCE_EXISTS: SequenceExistsError,
    Reason.SEQUENCE_UNKNOWN: SequenceUnknownError,
    Reason.LEASE_UNKNOWN: LeaseUnknownError,
    Reason.DRAINING: DaemonAbsentError,
    Reason.DEADLINE: DeadlineError,
    Reason.SEQUENCE_CONFLICT: SequenceConflictError,
    Reason.ACCESS_REFUSED: SessionRefusedError,
}

_BY_STATUS: dict[grpc.StatusCode, type[StoreError]] = {
    grpc.StatusCode.UNAVAILABLE: DaemonAbsentError,
    grpc.StatusCode.CANCELLED: DaemonAbsentError,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineError,
}


def reason_of(value: int) -> Reason:
    """The reason that a message carries; raises DaemonFaultError outside the closed enum."""
    try:
        return Reason(value)
    except ValueError as error:
        raise DaemonFaultError(f"the daemon gave a reason outside the contract: {value}") from error


def error_of_status(
    status: grpc.StatusCode, details: str, metadata: Iterable[tuple[str, str | bytes]]
) -> StoreError:
    """The typed error of a gRPC status and the trailing metadata that came with it."""
    for key, value in metadata:
        if key != REASON_METADATA:
            continue
        name = value.decode("ascii", "replace") if isinstance(value, bytes) else value
        if name in Reason.__members__:
            reason = Reason[name]
            kind = _BY_REASON.get(reason, DaemonFaultError)
            return kind(details or reason.name, reason=reason, refused=True)
    kind = _BY_STATUS.get(status, DaemonFaultError)
    return kind(f"{status.name}: {details}")
