"""The sequence service: named lists of chunks."""
# ruff: noqa: N802 - the contract names the methods

from kvstored.format.sequence_record import SequenceRecord
from kvstored.server import fields
from kvstored.server.calls import Services, in_thread, session_call
from kvstored.server.session import Session
from kvstored.store.sequence_table import SequenceTable
from kvstored_protos.v1 import sequence_pb2, sequence_pb2_grpc


class SequenceServicer(sequence_pb2_grpc.SequenceServiceServicer):
    """Implements ``SequenceService``. Every change is durable when it is answered."""

    def __init__(self, services: Services) -> None:
        self.services = services

    @property
    def _table(self) -> SequenceTable:
        return self.services.store.sequences

    @session_call
    async def Create(
        self, request: sequence_pb2.CreateSequenceRequest, session: Session
    ) -> sequence_pb2.Sequence:
        """Creates an empty sequence."""
        name = fields.sequence_name(request.name)
        layout_id = session.layout(request.layout_id).layout_id
        record = await in_thread(
            self.services.call_executor, self._table.create, session.namespace_id, name, layout_id
        )
        return to_proto(name, record)

    @session_call
    async def Get(
        self, request: sequence_pb2.SequenceRequest, session: Session
    ) -> sequence_pb2.Sequence:
        """Answers a sequence with its keys."""
        name = fields.sequence_name(request.name)
        record = await in_thread(
            self.services.call_executor, self._table.get, session.namespace_id, name
        )
        return to_proto(name, record)

    @session_call
    async def AppendChunks(
        self, request: sequence_pb2.AppendChunksRequest, session: Session
    ) -> sequence_pb2.Sequence:
        """Adds chunks at the back."""
        name = fields.sequence_name(request.name)
        keys = fields.checked_keys(request.keys)
        record = await in_thread(
            self.services.call_executor,
            self._table.append,
            session.namespace_id,
            name,
            keys,
            request.expected_chunks,
        )
        return to_proto(name, record)

    @session_call
    async def Fork(
        self, request: sequence_pb2.ForkSequenceRequest, session: Session
    ) -> sequence_pb2.Sequence:
        """Copies the front of a sequence under a new name."""
        name = fields.sequence_name(request.name)
        new_name = fields.sequence_name(request.new_name, "new_name")
        record = await in_thread(
            self.services.call_executor,
            self._table.fork,
            session.namespace_id,
            name,
            new_name,
            request.keep_chunks,
        )
        return to_proto(new_name, record)

    @session_call
    async def TruncateFront(
        self, request: sequence_pb2.TruncateSequenceRequest, session: Session
    ) -> sequence_pb2.Sequence:
        """Drops chunks from the front."""
        name = fields.sequence_name(request.name)
        record = await in_thread(
            self.services.call_executor,
            self._table.truncate_front,
            session.namespace_id,
            name,
            request.drop_chunks,
        )
        return to_proto(name, record)

    @session_call
    async def TruncateBack(
        self, request: sequence_pb2.TruncateSequenceRequest, session: Session
    ) -> sequence_pb2.Sequence:
        """Drops chunks from the back."""
        name = fields.sequence_name(request.name)
        record = await in_thread(
            self.services.call_executor,
            self._table.truncate_back,
            session.namespace_id,
            name,
            request.drop_chunks,
        )
        return to_proto(name, record)

    @session_call
    async def Delete(
        self, request: sequence_pb2.SequenceRequest, session: Session
    ) -> sequence_pb2.DeleteSequenceReply:
        """Deletes a sequence; its chunks stay."""
        name = fields.sequence_name(request.name)
        await in_thread(self.services.call_executor, self._table.delete, session.namespace_id, name)
        return sequence_pb2.DeleteSequenceReply()

    @session_call
    async def List(
        self, request: sequence_pb2.ListSequencesRequest, session: Session
    ) -> sequence_pb2.ListSequencesReply:
        """Names all sequences of the namespace."""
        _ = request
        names = await in_thread(self.services.call_executor, self._table.list, session.namespace_id)
        return sequence_pb2.ListSequencesReply(names=names)


def to_proto(name: str, record: SequenceRecord) -> sequence_pb2.Sequence:
    """A sequence as the contract has it."""
    return sequence_pb2.Sequence(
        name=name,
        layout_id=record.layout_id,
        keys=record.keys,
        dropped_chunks=record.dropped_chunks,
    )
