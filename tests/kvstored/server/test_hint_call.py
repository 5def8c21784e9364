"""Queues of engines over gRPC."""

import pytest

from kvstored_contract.limits import PLACE_MAX, WAITING_PER_SESSION_MAX
from kvstored_contract.reasons import Reason
from kvstored_protos.v1 import sequence_pb2
from tests.kvstored.server.caller import KEYS, LAYOUT, Caller, reason_of
from tests.support.waiting import until

Entry = sequence_pb2.QueueEntry


def entry(name: str = "a", place: int = 1, keys: list[bytes] | None = None) -> Entry:
    return Entry(name=name, place=place, keys=keys or KEYS, layout_id=LAYOUT.layout_id)


async def test_a_queue_is_told(caller: Caller) -> None:
    stub, metadata = caller.sequences, caller.peer.metadata
    first = sequence_pb2.HintRequest(version=4, entered=[entry("a"), entry("b", 2)])
    assert await stub.Hint(first, metadata=metadata) == sequence_pb2.HintReply(
        taken=True, version=4
    )
    assert await stub.Hint(first, metadata=metadata) == sequence_pb2.HintReply(
        taken=False, version=4
    )
    second = sequence_pb2.HintRequest(version=5, previous_version=4, left=["a"])
    assert (await stub.Hint(second, metadata=metadata)).taken
    hints = caller.served.store.hints
    assert len(hints.queue) == 1
    change = hints.changes[0]
    assert [(one.name, one.place) for one in change.entered] == [("a", 1), ("b", 2)]
    assert change.entered[0].keys == tuple(KEYS)
    assert change.layouts[LAYOUT.layout_id] == LAYOUT


async def test_the_queue_ends_with_its_session(caller: Caller) -> None:
    request = sequence_pb2.HintRequest(version=1, entered=[entry()])
    await caller.sequences.Hint(request, metadata=caller.peer.metadata)
    queue = caller.served.store.hints.queue
    assert len(queue) == 1
    caller.peer.session.close()
    await until(lambda: len(queue) == 0)


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (sequence_pb2.HintRequest(), Reason.FIELD_INVALID),
        (sequence_pb2.HintRequest(version=2**63 + 1), Reason.FIELD_INVALID),
        (sequence_pb2.HintRequest(version=2, previous_version=2), Reason.FIELD_INVALID),
        (sequence_pb2.HintRequest(version=1, entered=[Entry()]), Reason.FIELD_INVALID),
        (sequence_pb2.HintRequest(version=1, left=[""]), Reason.FIELD_INVALID),
        (
            sequence_pb2.HintRequest(version=1, entered=[entry(place=PLACE_MAX + 1)]),
            Reason.FIELD_INVALID,
        ),
        (sequence_pb2.HintRequest(version=1, entered=[entry(keys=[b"k"])]), Reason.FIELD_INVALID),
        (
            sequence_pb2.HintRequest(version=1, entered=[Entry(name="a", keys=KEYS)]),
            Reason.LAYOUT_UNKNOWN,
        ),
        (
            sequence_pb2.HintRequest(version=1, left=["a"] * (WAITING_PER_SESSION_MAX + 1)),
            Reason.LIMIT_EXCEEDED,
        ),
        (
            sequence_pb2.HintRequest(version=1, entered=[entry(keys=KEYS * 4097)]),
            Reason.LIMIT_EXCEEDED,
        ),
    ],
)
async def test_hints_that_cannot_be(
    caller: Caller, request_: sequence_pb2.HintRequest, reason: Reason
) -> None:
    refused = caller.sequences.Hint(request_, metadata=caller.peer.metadata)
    assert await reason_of(refused) is reason
    assert not caller.served.store.hints.changes
