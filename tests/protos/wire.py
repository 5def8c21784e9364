"""What of a contract may not change, as lines of text: whatever travels, by its number and type.

``python -m tests.protos.wire`` writes the lines of today's contract to ``released_2.txt``, named
after ``PROTOCOL_VERSION``. That is for a release: until then lines may only come.
"""

from collections.abc import Iterator
from pathlib import Path

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FileDescriptor

from kvstored_contract.limits import PROTOCOL_VERSION
from kvstored_protos.v1 import admin_pb2, common_pb2, sequence_pb2, session_pb2, store_pb2

RELEASED = Path(__file__).with_name(f"released_{PROTOCOL_VERSION}.txt")
MODULES = (common_pb2, session_pb2, store_pb2, sequence_pb2, admin_pb2)


def today() -> list[str]:
    """A line for each field, value of an enumeration, and method, sorted."""
    return sorted(line for module in MODULES for line in of_file(module.DESCRIPTOR))


def of_file(file: FileDescriptor) -> Iterator[str]:
    """The lines of one file."""
    for message in file.message_types_by_name.values():
        yield from _of_message(message)
    for values in file.enum_types_by_name.values():
        yield from _of_enum(values)
    for service in file.services_by_name.values():
        for method in service.methods:
            asked, answered = method.input_type.full_name, method.output_type.full_name
            yield f"{service.full_name}/{method.name}: {asked} -> {answered}"


def _of_message(message: Descriptor) -> Iterator[str]:
    for field in message.fields:
        part = field.message_type or field.enum_type
        of = "" if part is None else f" {part.full_name}"
        many = " repeated" if field.is_repeated else ""
        yield f"{message.full_name}.{field.number}: {field.name} type {field.type}{of}{many}"
    for nested in message.nested_types:
        yield from _of_message(nested)
    for values in message.enum_types:
        yield from _of_enum(values)


def _of_enum(values: EnumDescriptor) -> Iterator[str]:
    for value in values.values:
        yield f"{values.full_name}={value.number}: {value.name}"


if __name__ == "__main__":
    RELEASED.write_text("".join(f"{line}\n" for line in today()))
