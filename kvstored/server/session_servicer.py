"""The session service: layouts, and whether the daemon is there."""
# ruff: noqa: N802 - the contract names the methods

from kvstored import package_version
from kvstored.server.calls import Services, session_call
from kvstored.server.session import Session
from kvstored.server.waits import deadline_in
from kvstored_contract.layout import StateLayout
from kvstored_protos.v1 import session_pb2, session_pb2_grpc


class SessionServicer(session_pb2_grpc.SessionServiceServicer):
    """Implements ``SessionService``. ``epoch`` is that of this start of the daemon."""

    def __init__(self, services: Services, *, epoch: int) -> None:
        self.services = services
        self._epoch = epoch
        self._version = package_version()

    @session_call
    async def RegisterLayout(
        self, request: session_pb2.RegisterLayoutRequest, session: Session
    ) -> session_pb2.RegisterLayoutReply:
        """Makes a layout usable in this session."""
        layout = StateLayout.from_proto(request.layout)
        session.layouts.check_limit(layout)
        services = self.services
        await services.in_call_thread(
            session, deadline_in(), services.store.layouts.register, layout
        )
        return session_pb2.RegisterLayoutReply(layout_id=session.layouts.add(layout))

    @session_call
    async def Ping(
        self, request: session_pb2.PingRequest, session: Session
    ) -> session_pb2.PingReply:
        """Answers with the epoch and the version."""
        _ = request, session
        return session_pb2.PingReply(epoch=self._epoch, version=self._version)
