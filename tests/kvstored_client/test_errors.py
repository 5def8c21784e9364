import grpc
import pytest

from kvstored_client import errors
from kvstored_client.errors import StoreError, error_of_status, reason_of
from kvstored_contract.reasons import REASON_METADATA, Reason


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (Reason.TOKEN_UNKNOWN, errors.DaemonAbsentError),
        (Reason.NOT_ADMIN, errors.NotAdminError),
        (Reason.LAYOUT_INVALID, errors.LayoutRefusedError),
        (Reason.ARENA_RANGE, errors.RequestInvalidError),
        (Reason.LIMIT_EXCEEDED, errors.LimitExceededError),
        (Reason.DRAM_FULL, errors.NoRoomError),
        (Reason.DEVICE_FAILED, errors.DaemonFaultError),
        (Reason.SEQUENCE_EXISTS, errors.SequenceExistsError),
        (Reason.SEQUENCE_CONFLICT, errors.SequenceConflictError),
        (Reason.DEADLINE, errors.DeadlineError),
    ],
)
@pytest.mark.parametrize("encode", [str, str.encode])
def test_the_reason_decides_the_kind(
    reason: Reason, kind: type[StoreError], encode: type[str]
) -> None:
    error = error_of_status(
        grpc.StatusCode.UNKNOWN, "why", [("other", "x"), (REASON_METADATA, encode(reason.name))]
    )
    assert type(error) is kind
    assert (error.reason, error.refused, str(error)) == (reason, True, "why")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, errors.DaemonAbsentError),
        (grpc.StatusCode.DEADLINE_EXCEEDED, errors.DeadlineError),
        (grpc.StatusCode.INTERNAL, errors.DaemonFaultError),
    ],
)
@pytest.mark.parametrize("metadata", [[], [(REASON_METADATA, "NONSENSE")]])
def test_without_a_reason_nobody_knows_how_far_the_call_came(
    status: grpc.StatusCode, kind: type[StoreError], metadata: list[tuple[str, str]]
) -> None:
    error = error_of_status(status, "lost", metadata)
    assert type(error) is kind
    assert (error.reason, error.refused) == (Reason.UNSPECIFIED, False)


def test_a_reason_outside_the_closed_enum_is_the_daemons_fault() -> None:
    assert reason_of(8) is Reason.DRAM_FULL
    with pytest.raises(errors.DaemonFaultError, match="outside the contract: 99"):
        reason_of(99)
