"""Every method of the contract, from the descriptors, so that none can be forgotten."""

from dataclasses import dataclass

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from kvstored_protos.v1 import admin_pb2, sequence_pb2, session_pb2, store_pb2

FILES: tuple[FileDescriptor, ...] = (
    session_pb2.DESCRIPTOR,
    store_pb2.DESCRIPTOR,
    sequence_pb2.DESCRIPTOR,
    admin_pb2.DESCRIPTOR,
)


@dataclass(frozen=True, slots=True)
class ContractMethod:
    """A unary method: its path, and the types of request and reply."""

    path: str
    request: type[Message]
    reply: type[Message]

    def __str__(self) -> str:
        return self.path.rsplit(".", maxsplit=1)[-1]


OUTAGES = frozenset({"Drain"})
"""What an administrator may do to everybody: ``tests/kvstored/cli/operate`` has its tests."""

METHODS: tuple[ContractMethod, ...] = tuple(
    ContractMethod(
        f"/{service.full_name}/{method.name}",
        GetMessageClass(method.input_type),
        GetMessageClass(method.output_type),
    )
    for file in FILES
    for service in file.services_by_name.values()
    for method in service.methods
    if method.name not in OUTAGES
)
