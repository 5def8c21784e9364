from kvstored_contract.reasons import Reason
from kvstored_protos.v1 import common_pb2


def test_reasons_have_the_names_and_values_of_protobuf() -> None:
    assert {f"REASON_{reason.name}": reason.value for reason in Reason} == dict(
        common_pb2.Reason.items()
    )
