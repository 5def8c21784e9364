import pytest

from kvstored_client.errors import DaemonFaultError, RequestInvalidError
from kvstored_client.values import Ack, AppendItem, NewChunk, Order, PutOutcome, PutResult
from kvstored_client.verbs import methods
from kvstored_client.verbs.call import Method, building
from kvstored_client.verbs.placement import Placement
from kvstored_client.verbs.replies import (
    matched_chunks,
    pinned_keys,
    put_report,
    rejected_report,
    sequence_info,
)
from kvstored_client.verbs.requests import append_request, pin_request, put_request, read_request
from kvstored_contract.reasons import Reason
from kvstored_protos.v1 import (
    admin_pb2,
    common_pb2,
    sequence_pb2,
    session_pb2,
    store_pb2,
)

KEY = b"k" * 32
PARENT = b"p" * 32


def test_every_method_of_the_contract_is_named_with_its_reply() -> None:
    named = {
        value.path: value.reply for value in vars(methods).values() if isinstance(value, Method)
    }
    contract = {
        f"/{service.full_name}/{method.name}": method.output_type
        for file in (admin_pb2, sequence_pb2, session_pb2, store_pb2)
        for service in file.DESCRIPTOR.services_by_name.values()
        # Operators call it, by the command.
        if service.name != "OperatorService"
        for method in service.methods
    }
    # A client learns the end of a session from its socket and never pings.
    del contract["/kvstored.v1.SessionService/Ping"]
    assert {path: reply.DESCRIPTOR for path, reply in named.items()} == contract


def test_a_put_carries_everything() -> None:
    request = put_request(
        layout_id=b"l",
        chunks=[
            NewChunk(key=KEY, token_count=3, parent_key=PARENT, stripe=7),
            NewChunk(key=KEY, token_count=3, slice_bytes=(8, 0, 9)),
        ],
        source=Placement(regions=(), base=1, layer_stride=2, chunk_stride=3, block_offsets=(4, 5)),
        ack=Ack.DURABLE,
        timeout_ms=6,
    )
    assert request == store_pb2.PutRequest(
        layout_id=b"l",
        chunks=[
            store_pb2.PutChunk(key=KEY, parent_key=PARENT, token_count=3, stripe=7),
            store_pb2.PutChunk(key=KEY, token_count=3, stripe=1, slice_bytes=[8, 0, 9]),
        ],
        source=common_pb2.Placement(base=1, layer_stride=2, chunk_stride=3, block_offsets=[4, 5]),
        ack=store_pb2.ACK_DURABLE,
        deadline_ms=6,
    )


def test_a_read_carries_everything() -> None:
    request = read_request(
        layout_id=b"l",
        keys=[KEY],
        order=Order.LAYER_FIRST,
        first_layer=1,
        layer_count=2,
        destination=Placement(regions=(), base=3, layer_stride=4),
        board_offset=8,
        window_bytes=9,
        timeout_ms=10,
    )
    assert request == store_pb2.ReadRequest(
        layout_id=b"l",
        keys=[KEY],
        order=store_pb2.ORDER_LAYER_FIRST,
        first_layer=1,
        layer_count=2,
        destination=common_pb2.Placement(base=3, layer_stride=4),
        board_offset=8,
        window_bytes=9,
        deadline_ms=10,
    )


def test_an_append_carries_everything_and_a_deadline() -> None:
    request = append_request(
        layout_id=b"l",
        snapshot_offset=1,
        row_count=2,
        items=[AppendItem(sequence="name", first_token=3, first_row=4, token_count=5, keys=[KEY])],
        timeout_ms=0,
    )
    item = store_pb2.AppendItem(
        sequence="name", first_token=3, first_row=4, token_count=5, keys=[KEY]
    )
    assert request == store_pb2.AppendRequest(
        layout_id=b"l", snapshot_offset=1, row_count=2, items=[item], deadline_ms=1
    )


def test_a_pin_carries_everything() -> None:
    request = pin_request(layout_id=b"l", keys=[KEY], lease_ms=6)
    assert request == store_pb2.PinRequest(layout_id=b"l", keys=[KEY], lease_ms=6)


def test_a_malformed_argument_is_an_invalid_request() -> None:
    with pytest.raises(RequestInvalidError, match="not a valid request"), building():
        store_pb2.DeleteRequest(keys=["text"])  # type: ignore[list-item]
    with pytest.raises(RequestInvalidError), building():
        store_pb2.MatchRequest(lease_ms=-1)


def test_put_results_are_those_of_the_daemon() -> None:
    reply = store_pb2.PutReply(
        results=[
            store_pb2.PutResult(outcome=store_pb2.PUT_OUTCOME_STORED),
            store_pb2.PutResult(outcome=store_pb2.PUT_OUTCOME_EXISTED),
            store_pb2.PutResult(
                outcome=store_pb2.PUT_OUTCOME_REJECTED, reason=common_pb2.REASON_DRAM_FULL
            ),
        ]
    )
    report = put_report(reply, 3)
    assert report.results[2] == PutResult(PutOutcome.REJECTED, Reason.DRAM_FULL)
    assert (report.stored_count, report.existed_count, report.rejected_count) == (1, 1, 1)
    assert rejected_report(Reason.DRAINING, 2).rejected_count == 2


@pytest.mark.parametrize("outcome", [0, 9])
def test_a_reply_outside_the_contract_is_the_daemons_fault(outcome: int) -> None:
    reply = store_pb2.PutReply(results=[store_pb2.PutResult(outcome=outcome)])  # type: ignore[arg-type]
    with pytest.raises(DaemonFaultError, match="outcome outside the contract"):
        put_report(reply, 1)
    with pytest.raises(DaemonFaultError, match="1 results for 2 chunks"):
        put_report(reply, 2)


def test_a_match_is_never_longer_than_the_question() -> None:
    assert matched_chunks(store_pb2.MatchReply(matched_chunks=2), 2) == 2
    with pytest.raises(DaemonFaultError, match="matched 3 chunks of 2 keys"):
        matched_chunks(store_pb2.MatchReply(matched_chunks=3), 2)


def test_a_pin_answers_of_every_key() -> None:
    reply = store_pb2.PinReply(is_pinned=[True, False])
    assert pinned_keys(reply, 2) == (True, False)
    with pytest.raises(DaemonFaultError, match="answered for 2 of 3 keys"):
        pinned_keys(reply, 3)


def test_a_sequence_becomes_a_value() -> None:
    info = sequence_info(
        sequence_pb2.Sequence(name="n", layout_id=b"l", keys=[KEY], dropped_chunks=4)
    )
    assert (info.name, info.layout_id, info.keys, info.dropped_chunks) == ("n", b"l", (KEY,), 4)
