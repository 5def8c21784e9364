"""The largest calls that the contract allows, as a greedy client makes them."""

from benchmarks.storage.fairness import KINDS
from benchmarks.storage.greedy import BLOCKS_PER_SLICE, largest_calls
from kvstored_contract.limits import BLOCKS_PER_CALL_MAX, CHUNKS_PER_CALL_MAX
from kvstored_protos.v1 import store_pb2


def test_every_kind_is_as_large_as_a_call_may_be() -> None:
    calls = largest_calls()
    assert set(calls) == set(KINDS)
    bodies = {kind: body for kind, (_, body) in calls.items()}
    assert len(store_pb2.MatchRequest.FromString(bodies["match"]).keys) == CHUNKS_PER_CALL_MAX
    assert len(store_pb2.PinRequest.FromString(bodies["pin"]).keys) == CHUNKS_PER_CALL_MAX
    assert len(store_pb2.PutRequest.FromString(bodies["put"]).chunks) == CHUNKS_PER_CALL_MAX
    read = store_pb2.ReadRequest.FromString(bodies["read"])
    assert len(read.destination.block_offsets) == BLOCKS_PER_CALL_MAX
    assert len(read.keys) * BLOCKS_PER_SLICE == BLOCKS_PER_CALL_MAX
