"""Refusals and their status codes."""

import grpc
import pytest

from kvstored.server.errors import RefusedError, refusal_of, refuse
from kvstored.store.read.placement import PlacementError
from kvstored.store.sequences.rules import (
    SequenceConflictError,
    SequenceExistsError,
    SequenceUnknownError,
)
from kvstored.store.sequences.sequence_table import SequenceStorageError
from kvstored.tiers.chunks.requests import LayoutRefusedError
from kvstored_contract.layout import LayoutError
from kvstored_contract.reasons import Reason
from kvstored_protos.v1 import common_pb2


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason])
def test_every_reason_has_a_status_and_is_named_in_the_metadata(reason: Reason) -> None:
    refusal = RefusedError(reason, "no")
    assert isinstance(refusal.status, grpc.StatusCode)
    assert refusal.status is not grpc.StatusCode.OK
    assert refusal.metadata == (("kvstored-reason", reason.name),)


def test_reasons_are_those_of_the_contract() -> None:
    names = {f"REASON_{reason.name}": reason.value for reason in Reason}
    assert names == dict(common_pb2.Reason.items())


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (LayoutError("x"), Reason.LAYOUT_INVALID),
        (LayoutRefusedError("x"), Reason.LAYOUT_INVALID),
        (PlacementError("x"), Reason.ARENA_RANGE),
        (SequenceExistsError("x"), Reason.SEQUENCE_EXISTS),
        (SequenceUnknownError("x"), Reason.SEQUENCE_UNKNOWN),
        (SequenceConflictError("x"), Reason.SEQUENCE_CONFLICT),
        (SequenceStorageError(Reason.DEVICE_FAILED), Reason.DEVICE_FAILED),
        (RefusedError(Reason.DRAINING, "x"), Reason.DRAINING),
    ],
)
def test_errors_of_the_layers_below_are_translated(error: Exception, reason: Reason) -> None:
    refusal = refusal_of(error)
    assert refusal is not None
    assert refusal.reason is reason
    assert str(refusal) == str(error)


def test_other_errors_are_faults() -> None:
    assert refusal_of(KeyError("x")) is None


def test_refuse_raises() -> None:
    with pytest.raises(RefusedError, match="sentence"):
        refuse(Reason.INTERNAL, "a sentence")
