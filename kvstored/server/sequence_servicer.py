"""The sequence service: named lists of chunks with an open tail."""
# ruff: noqa: N802 - the contract names the methods

import math
from collections.abc import Callable
from typing import Concatenate, ParamSpec

from kvstored.server import fields
from kvstored.server.calls import Services, session_call
from kvstored.server.errors import RefusedError, refuse
from kvstored.server.hint_request import queue_change
from kvstored.server.session import Session, SessionKind
from kvstored.server.waits import deadline_in
from kvstored.store.sequences.sequence_state import SequenceState
from kvstored.tiers.hints.queue_change import QueueAnswer
from kvstored.tiers.sequences.sequences import Caller, Sequences
from kvstored_contract.limits import DEADLINE_MS_MAX
from kvstored_contract.reasons import Reason
from kvstored_protos.v1 import common_pb2, sequence_pb2, sequence_pb2_grpc

COMMIT_GRACE_S = 1.0
"""What the commit of a flush that its deadline cut short may take before the answer is given
without it."""

Arguments = ParamSpec("Arguments")
Verb = Callable[Concatenate[Caller, str, Arguments], SequenceState]


class SequenceServicer(sequence_pb2_grpc.SequenceServiceServicer):
    """Implements ``SequenceService``. Every change is durable when it is answered."""

    def __init__(self, services: Services) -> None:
        self.services = services

    @property
    def _sequences(self) -> Sequences:
        return self.services.store.sequences

    @session_call
    async def Create(
        self, request: sequence_pb2.CreateSequenceRequest, session: Session
    ) -> sequence_pb2.Sequence:
        """Creates a sequence, empty or of stored chunks."""
        if request.ephemeral:
            check_ends(session, "an ephemeral sequence ends with its session; create a named one")
        return await self._run(
            session,
            self._sequences.create,
            fields.sequence_name(request.name),
            session.layouts.find(request.layout_id),
            keys=fields.checked_keys(request.keys) if request.keys else (),
            is_ephemeral=request.ephemeral,
        )

    @session_call
    async def Get(
        self, request: sequence_pb2.SequenceRequest, session: Session
    ) -> sequence_pb2.Sequence:
        """Answers a sequence with its keys."""
        return await self._run(session, self._sequences.get, fields.sequence_name(request.name))

    @session_call
    async def AppendChunks(
        self, request: sequence_pb2.AppendChunksRequest, session: Session
    ) -> sequence_pb2.Sequence:
        """Adds chunks at the back."""
        return await self._run(
            session,
            self._sequences.append,
            fields.sequence_name(request.name),
            fields.checked_keys(request.keys),
            request.expected_chunks,
        )

    @session_call
    async def Fork(
        self, request: sequence_pb2.ForkSequenceRequest, session: Session
    ) -> sequence_pb2.Sequence:
        """Copies the front of a sequence, or all of it, under a new name."""
        deadline = deadline_in()
        name = fields.sequence_name(request.name)
        new_name = fields.sequence_name(request.new_name, "new_name")
        state = await self.services.in_call_thread(
            session,
            deadline,
            self._sequences.fork,
            caller(session, deadline),
            name,
            new_name,
            request.keep_chunks,
        )
        return self._answer(session, new_name, state)

    @session_call
    async def TruncateFront(
        self, request: sequence_pb2.TruncateSequenceRequest, session: Session
    ) -> sequence_pb2.Sequence:
        """Drops chunks from the front."""
        name = fields.sequence_name(request.name)
        fields.bounded(request.drop_tokens, "drop_tokens of TruncateFront", least=0, most=0)
        return await self._run(session, self._sequences.truncate_front, name, request.drop_chunks)

    @session_call
    async def TruncateBack(
        self, request: sequence_pb2.TruncateSequenceRequest, session: Session
    ) -> sequence_pb2.Sequence:
        """Drops chunks or tokens from the back."""
        name = fields.sequence_name(request.name)
        if not request.drop_tokens:
            return await self._run(
                session, self._sequences.truncate_back, name, request.drop_chunks
            )
        fields.bounded(request.drop_chunks, "drop_chunks beside drop_tokens", least=0, most=0)
        check_ends(session, "an open tail ends with its session; drop whole chunks")
        return await self._run(session, self._sequences.truncate_tokens, name, request.drop_tokens)

    @session_call
    async def Flush(
        self, request: sequence_pb2.FlushSequenceRequest, session: Session
    ) -> sequence_pb2.Sequence:
        """Makes a sequence with its tail durable, as far as that can be done in time."""
        name = fields.sequence_name(request.name)
        tail_key = fields.checked_keys([request.tail_key])[0] if request.tail_key else b""
        deadline = deadline_in(
            fields.bounded(request.deadline_ms, "deadline_ms", least=0, most=DEADLINE_MS_MAX)
        )
        who, verbs = caller(session, deadline), self._sequences
        try:
            state = await self.services.in_call_thread(
                session,
                deadline + COMMIT_GRACE_S,
                verbs.flush,
                who,
                name,
                tail_key,
                request.expected_tokens,
            )
        except RefusedError as refusal:
            glanced = verbs.glance(who, name)
            if refusal.reason is not Reason.DEADLINE or glanced is None:
                raise
            state = glanced
        answer = self._answer(session, name, state)
        if state.durable_tokens < request.expected_tokens:
            if not request.deadline_ms:
                refuse(
                    Reason.DEADLINE,
                    f"{state.durable_tokens} of {request.expected_tokens} tokens are durable; "
                    "the others follow: flush again",
                )
            answer.reason = common_pb2.REASON_DEADLINE
        return answer

    @session_call
    async def Delete(
        self, request: sequence_pb2.SequenceRequest, session: Session
    ) -> sequence_pb2.DeleteSequenceReply:
        """Deletes a sequence; its chunks stay."""
        deadline = deadline_in()
        name = fields.sequence_name(request.name)
        await self.services.in_call_thread(
            session, deadline, self._sequences.delete, caller(session, deadline), name
        )
        return sequence_pb2.DeleteSequenceReply()

    @session_call
    async def List(
        self, request: sequence_pb2.ListSequencesRequest, session: Session
    ) -> sequence_pb2.ListSequencesReply:
        """Names all sequences of the namespace."""
        _ = request
        deadline = deadline_in()
        names = await self.services.in_call_thread(
            session, deadline, self._sequences.list, caller(session, deadline)
        )
        return sequence_pb2.ListSequencesReply(names=names)

    @session_call
    async def Hint(
        self, request: sequence_pb2.HintRequest, session: Session
    ) -> sequence_pb2.HintReply:
        """Hears what changed in the queue of an engine."""
        deadline = deadline_in()

        def run() -> QueueAnswer:
            change = queue_change(request, session)
            return self.services.store.hints.hint(caller(session, deadline), change)

        answer = await self.services.in_call_thread(session, deadline, run)
        return sequence_pb2.HintReply(
            taken=answer.is_taken, version=answer.version, ignored=answer.ignored
        )

    async def _run(
        self,
        session: Session,
        verb: Verb[Arguments],
        name: str,
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> sequence_pb2.Sequence:
        """Runs a verb of one sequence on a thread and answers what it is then."""
        deadline = deadline_in()

        def run() -> sequence_pb2.Sequence:
            # Answered here, too: there may be many keys.
            return self._answer(
                session, name, verb(caller(session, deadline), name, *args, **kwargs)
            )

        return await self.services.in_call_thread(session, deadline, run)

    def _answer(self, session: Session, name: str, state: SequenceState) -> sequence_pb2.Sequence:
        is_ephemeral = self._sequences.is_ephemeral(caller(session), name)
        return to_proto(name, state, is_ephemeral=is_ephemeral)


def caller(session: Session, deadline: float = math.inf) -> Caller:
    """Whose sequences are meant, and until when they are waited for."""
    ends = session.identity.kind is not SessionKind.REMOTE
    return Caller(session.namespace_id, session.identity.session_id, deadline, ends)


def check_ends(session: Session, sentence: str) -> None:
    """Raises RefusedError for callers over TCP, of whom nobody hears when they are gone."""
    if session.identity.kind is SessionKind.REMOTE:
        refuse(Reason.FIELD_INVALID, f"over TCP a caller has no session of its own: {sentence}")


def to_proto(name: str, state: SequenceState, *, is_ephemeral: bool) -> sequence_pb2.Sequence:
    """A sequence as the contract has it."""
    record = state.record()
    return sequence_pb2.Sequence(
        name=name,
        layout_id=record.layout_id,
        keys=record.keys,
        dropped_chunks=record.dropped_chunks,
        tail_key=record.tail.key if record.tail else b"",
        durable_tail_tokens=record.tail.token_count if record.tail else 0,
        tail_tokens=state.tail_tokens,
        staged_tokens=state.length_tokens,
        durable_tokens=state.durable_tokens,
        stopped=state.is_stopped,
        ephemeral=is_ephemeral,
    )
