"""An older client understands what this version sends, and is understood."""

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool

from tests.protos.wire import RELEASED, of_file, today


def lines_of(file: descriptor_pb2.FileDescriptorProto) -> list[str]:
    pool = descriptor_pool.DescriptorPool()
    return list(of_file(pool.AddSerializedFile(file.SerializeToString())))


def contract() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", package="a", syntax="proto3")
    asked = file.message_type.add(name="Asked")
    asked.field.add(name="key", number=1, type="TYPE_BYTES", label="LABEL_OPTIONAL")
    nested = asked.nested_type.add(name="Part")
    nested.field.add(name="size", number=1, type="TYPE_UINT32", label="LABEL_REPEATED")
    kind = nested.enum_type.add(name="Kind")
    kind.value.add(name="NONE", number=0)
    file.enum_type.add(name="Ack").value.add(name="STAGED", number=0)
    service = file.service.add(name="Store")
    service.method.add(name="Put", input_type=".a.Asked", output_type=".a.Asked")
    return file


def test_nothing_that_was_released_changed() -> None:
    """A field of another number, type or name is another contract: raise PROTOCOL_VERSION then."""
    gone = set(RELEASED.read_text().splitlines()) - set(today())
    assert sorted(gone) == []


def test_every_part_of_a_contract_has_a_line() -> None:
    assert sorted(lines_of(contract())) == [
        "a.Ack=0: STAGED",
        "a.Asked.1: key type 12",
        "a.Asked.Part.1: size type 13 repeated",
        "a.Asked.Part.Kind=0: NONE",
        "a.Store/Put: a.Asked -> a.Asked",
    ]


@pytest.mark.parametrize("change", ["number", "type", "label"])
def test_another_field_is_another_line(change: str) -> None:
    changed = contract()
    field = changed.message_type[0].field[0]
    if change == "number":
        field.number = 2
    elif change == "type":
        field.type = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
    else:
        field.label = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
    assert set(lines_of(contract())) - set(lines_of(changed))
