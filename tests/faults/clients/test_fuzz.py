"""The fuzz targets, driven by hypothesis, so that they never rot where atheris is absent.

Fails when ``fields.board_range`` accepts a board past the end of the arena (seen: ValueError
from numpy).
"""

import hypothesis
import pytest
from google.protobuf.message import Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvstored_contract.handshake import frame
from kvstored_protos.v1 import admin_pb2, common_pb2, sequence_pb2, session_pb2, store_pb2
from tests.faults.clients import fuzz_requests
from tests.faults.clients.fuzz_requests import TARGETS, fuzz_one
from tests.faults.clients.messages import messages
from tests.support import labs
from tests.support.seeds import seed

KINDS: dict[str, tuple[type[Message], ...]] = {
    "fuzz_handshake": (session_pb2.Hello,),
    "fuzz_put": (store_pb2.PutRequest,),
    "fuzz_append": (store_pb2.AppendRequest,),
    "fuzz_read": (store_pb2.ReadRequest,),
    "fuzz_keys": (store_pb2.MatchRequest, store_pb2.PinRequest, store_pb2.DeleteRequest),
    "fuzz_layout": (common_pb2.StateLayout,),
    "fuzz_names": (sequence_pb2.SequenceRequest, admin_pb2.InspectRequest),
}


def serialised(kind: type[Message], name: str) -> st.SearchStrategy[bytes]:
    """Messages as bytes, a few of them damaged."""
    write = frame if name == "fuzz_handshake" else kind.SerializeToString
    whole = messages(kind).map(write)
    return whole | st.tuples(whole, st.integers(0, 200), st.binary(max_size=8)).map(
        lambda parts: parts[0][: parts[1]] + parts[2] + parts[0][parts[1] + len(parts[2]) :]
    )


@labs.PARSED.sizes("examples")
@pytest.mark.parametrize("name", KINDS)
def test_a_parser_refuses_or_accepts(name: str, examples: int) -> None:
    target = getattr(fuzz_requests, name)
    assert target in TARGETS
    inputs = st.one_of(*(serialised(kind, name) for kind in KINDS[name]))

    @hypothesis.seed(seed())
    @settings(max_examples=examples, database=None, suppress_health_check=list(HealthCheck))
    @given(data=st.binary(max_size=300) | inputs)
    def run(data: bytes) -> None:
        target(data)

    run()


def test_every_target_is_driven() -> None:
    assert {target.__name__ for target in TARGETS} == set(KINDS)
    for number in range(len(TARGETS)):
        fuzz_one(bytes([number]))
    fuzz_one(b"")
