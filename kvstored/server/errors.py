"""How a refusal travels: a gRPC status code, one sentence, and the reason as metadata."""

from typing import NoReturn

import grpc

from kvstored.store.read.placement import PlacementError
from kvstored.store.sequences.rules import (
    SequenceBusyError,
    SequenceConflictError,
    SequenceExistsError,
    SequenceLimitError,
    SequenceUnknownError,
)
from kvstored.store.sequences.sequence_table import SequenceStorageError
from kvstored.store.write.chunk_store import DeletionError
from kvstored.tiers.chunks.requests import LayoutRefusedError
from kvstored_contract.layout import LayoutError
from kvstored_contract.reasons import REASON_METADATA, Reason

_STATUS = {
    Reason.TOKEN_UNKNOWN: grpc.StatusCode.UNAUTHENTICATED,
    Reason.NOT_ADMIN: grpc.StatusCode.PERMISSION_DENIED,
    Reason.LAYOUT_UNKNOWN: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.LAYOUT_INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.ARENA_RANGE: grpc.StatusCode.OUT_OF_RANGE,
    Reason.FIELD_INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.LIMIT_EXCEEDED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.DRAM_FULL: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.STORE_FULL: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.DEVICE_FAILED: grpc.StatusCode.UNAVAILABLE,
    Reason.NOT_STORED: grpc.StatusCode.NOT_FOUND,
    Reason.CHECKSUM: grpc.StatusCode.DATA_LOSS,
    Reason.SEQUENCE_EXISTS: grpc.StatusCode.ALREADY_EXISTS,
    Reason.SEQUENCE_UNKNOWN: grpc.StatusCode.NOT_FOUND,
    Reason.LEASE_UNKNOWN: grpc.StatusCode.NOT_FOUND,
    Reason.DRAINING: grpc.StatusCode.UNAVAILABLE,
    Reason.DEADLINE: grpc.StatusCode.DEADLINE_EXCEEDED,
    Reason.INTERNAL: grpc.StatusCode.INTERNAL,
    Reason.SEQUENCE_CONFLICT: grpc.StatusCode.ABORTED,
    Reason.ACCESS_REFUSED: grpc.StatusCode.PERMISSION_DENIED,
}

_REASON_OF_ERROR: dict[type[Exception], Reason] = {
    LayoutError: Reason.LAYOUT_INVALID,
    LayoutRefusedError: Reason.LAYOUT_INVALID,
    PlacementError: Reason.ARENA_RANGE,
    SequenceBusyError: Reason.DEADLINE,
    SequenceConflictError: Reason.SEQUENCE_CONFLICT,
    SequenceExistsError: Reason.SEQUENCE_EXISTS,
    SequenceLimitError: Reason.LIMIT_EXCEEDED,
    SequenceUnknownError: Reason.SEQUENCE_UNKNOWN,
}


class RefusedError(Exception):
    """A request that is not served; the message is one sentence for the caller."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason

    @property
    def status(self) -> grpc.StatusCode:
        """The gRPC status code of the reason."""
        return _STATUS[self.reason]

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Trailing metadata of the answer."""
        return ((REASON_METADATA, self.reason.name),)


def refuse(reason: Reason, message: str) -> NoReturn:
    """Raises RefusedError."""
    raise RefusedError(reason, message)


def refusal_of(error: Exception) -> RefusedError | None:
    """The refusal that an error of the layers below means; None for a fault of the daemon."""
    if isinstance(error, RefusedError):
        return error
    if isinstance(error, SequenceStorageError | DeletionError):
        return RefusedError(error.reason, str(error))
    reason = _REASON_OF_ERROR.get(type(error))
    return None if reason is None else RefusedError(reason, str(error))
