"""What a hostile client says over gRPC: always a typed refusal, and nobody is harmed.

Fails when ``fields.board_range`` accepts a board past the end of the arena (seen: INTERNAL for
a read), when ``SessionTable.find`` takes any session for an unknown token (seen: LAYOUT_INVALID
without a token), when sessions share one table of leases (seen: a thief's Unpin succeeds), when
``admission`` sends a sentence of any length (seen: RESOURCE_EXHAUSTED without a reason), and
when ``admission`` does not catch DecodeError (seen: UNKNOWN).
"""

import grpc
import hypothesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvstored_contract.limits import CHUNKS_PER_CALL_MAX, GRPC_MESSAGE_BYTES_MAX
from kvstored_contract.reasons import Reason
from kvstored_protos.v1 import admin_pb2, store_pb2
from tests.faults.clients.messages import KEYS, messages
from tests.faults.clients.methods import METHODS, ContractMethod
from tests.faults.clients.raw_session import Answer, RawSession, call
from tests.faults.clients.requests import ENCODED, STORE, must, pin_of, put_of, register
from tests.faults.clients.witness import Witness
from tests.support import labs
from tests.support.daemon import DaemonProcess
from tests.support.seeds import seed

FAULTS = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNAVAILABLE}


def check(answer: Answer, method: ContractMethod) -> None:
    """An answer is a reply that parses, or a status with a reason of the closed enum."""
    if answer.status is grpc.StatusCode.OK:
        method.reply.FromString(answer.body)
        return
    assert answer.status not in FAULTS, answer
    assert answer.reason in Reason.__members__, answer
    assert answer.reason not in (Reason.INTERNAL.name, Reason.UNSPECIFIED.name), answer
    assert answer.details, answer


def check_log(daemon: DaemonProcess) -> None:
    """The daemon lives, and nothing that a client did was a fault of the daemon."""
    assert daemon.process is not None
    assert daemon.process.poll() is None, daemon.log[-4000:]
    assert "Traceback" not in daemon.log, daemon.log[-4000:]
    assert " ERROR " not in daemon.log, daemon.log[-4000:]


def registered(daemon: DaemonProcess) -> RawSession:
    """A hostile session that has registered the sensible layouts."""
    session = RawSession(daemon.socket_path, name="hostile")
    register(session)
    register(session, ENCODED)
    return session


def drive(
    session: RawSession,
    method: ContractMethod,
    bodies: st.SearchStrategy[bytes],
    *,
    examples: int,
    number: int,
) -> None:
    """Sends bodies to one method and checks every answer."""

    @hypothesis.seed(number)
    @settings(max_examples=examples, database=None, suppress_health_check=list(HealthCheck))
    @given(body=bodies)
    def one(body: bytes) -> None:
        answer = session.call(method.path, body)
        if len(body) > GRPC_MESSAGE_BYTES_MAX:
            # gRPC refuses these before the daemon sees them.
            assert answer.status is grpc.StatusCode.RESOURCE_EXHAUSTED, answer
        else:
            check(answer, method)

    one()


def attack(daemon: DaemonProcess, *, examples: int) -> None:
    """Random messages to every method, ``examples`` each, beside a witness."""
    number = seed()
    with (
        registered(daemon) as session,
        Witness(daemon.socket_path, on_stuck=daemon.show_threads),
    ):
        for method in METHODS:
            bodies = messages(method.request).map(method.request.SerializeToString)
            # The requests with the most numbers in them.
            times = 4 if str(method) in ("StoreService/Put", "StoreService/Read") else 1
            drive(session, method, bodies, examples=times * examples, number=number)
    check_log(daemon)


@labs.MESSAGES.sizes("examples")
def test_random_messages_are_answered_or_refused_with_a_reason(
    served: DaemonProcess, examples: int
) -> None:
    attack(served, examples=examples)


def test_a_body_that_is_no_message_is_refused_with_a_reason(served: DaemonProcess) -> None:
    """Bug: gRPC answered UNKNOWN and the daemon logged a traceback for each."""
    number = seed()
    with registered(served) as session, Witness(served.socket_path):
        for method in METHODS:
            bodies = st.just(b"\xff\xff") | st.binary(max_size=200)
            drive(session, method, bodies, examples=10, number=number)
            # Neither does a caller without a token get further than that.
            answer = call(session.channel, method.path, b"\xff\xff", token=None)
            assert answer.reason in (Reason.TOKEN_UNKNOWN.name, Reason.FIELD_INVALID.name), answer
    check_log(served)


def test_no_method_works_without_a_token(served: DaemonProcess) -> None:
    with registered(served) as session:
        for method in METHODS:
            for token in (None, "", "x", "x" * 4000):
                answer = call(session.channel, method.path, b"", token=token)
                assert answer.status is grpc.StatusCode.UNAUTHENTICATED, (method, answer)
                assert answer.reason == Reason.TOKEN_UNKNOWN.name
    check_log(served)


def test_no_method_works_with_the_token_of_an_ended_session(served: DaemonProcess) -> None:
    with registered(served) as session, registered(served) as ended:
        ended.hang_up()
        for method in METHODS:
            answer = session.call(method.path, b"", token=ended.welcome.token)
            while answer.status is not grpc.StatusCode.UNAUTHENTICATED:
                # The served hears of the end when it reads it.
                answer = session.call(method.path, b"", token=ended.welcome.token)
            assert answer.reason == Reason.TOKEN_UNKNOWN.name
    check_log(served)


def test_a_lease_of_another_session_is_unknown(served: DaemonProcess) -> None:
    with registered(served) as owner, registered(served) as thief:
        must(owner.call(STORE + "Put", put_of(KEYS[:1])))
        pinned = must(owner.call(STORE + "Pin", pin_of(KEYS[:1])))
        lease_id = store_pb2.PinReply.FromString(pinned.body).lease_id
        assert lease_id
        unpin = store_pb2.UnpinRequest(lease_id=lease_id).SerializeToString()
        stolen = thief.call(STORE + "Unpin", unpin)
        assert stolen.reason == Reason.LEASE_UNKNOWN.name, stolen
        must(owner.call(STORE + "Unpin", unpin))


def test_a_long_field_in_a_refusal_does_not_break_the_answer(served: DaemonProcess) -> None:
    """Bug: the sentence repeated the field, and gRPC tore down the call as too long."""
    long_layout = store_pb2.MatchRequest(layout_id=b"\xff" * 100_000, keys=KEYS)
    long_prefix = admin_pb2.InspectRequest(key_prefix="é" * 100_000)
    with registered(served) as session:
        answer = session.call(STORE + "Match", long_layout.SerializeToString())
        assert answer.reason == Reason.LAYOUT_UNKNOWN.name, answer
        answer = session.call("/kvstored.v1.AdminService/Inspect", long_prefix.SerializeToString())
        assert answer.reason == Reason.FIELD_INVALID.name, answer


def test_a_message_that_is_too_large_is_refused(served: DaemonProcess) -> None:
    many = store_pb2.DeleteRequest(keys=[b"k" * 32] * 300_000).SerializeToString()
    few = store_pb2.DeleteRequest(keys=[b"k" * 32] * (CHUNKS_PER_CALL_MAX + 1)).SerializeToString()
    with registered(served) as session, Witness(served.socket_path):
        assert session.call(STORE + "Delete", many).status is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert session.call(STORE + "Delete", few).reason == Reason.LIMIT_EXCEEDED.name
    check_log(served)
