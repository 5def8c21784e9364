"""Calls over TCP with certificates, to a server over the fake store."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from engine_adapters.vllm.testing.ports import free_port
from kvstored.server.access import AccessRules, Tenant
from kvstored.server.listen import ListenError
from kvstored.server.remote.certificates import CertificateFiles, RenewedCertificates
from kvstored.server.remote.remote_server import RemoteOptions
from kvstored.server.session_table import SessionLimits
from kvstored_contract.reasons import REASON_METADATA, Reason
from kvstored_protos.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    sequence_pb2,
    sequence_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
    store_pb2,
    store_pb2_grpc,
)
from tests.kvstored.server.caller import KEYS, LAYOUT, calling
from tests.kvstored.server.served import NOT_ADMIN, Served
from tests.support.certificates import Authority, Pair, needs_openssl

pytestmark = needs_openssl
ROUTER, GUEST = "router.example", "guest.example"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def router(authority: Authority) -> Pair:
    return authority.signed("router", name=ROUTER)


@pytest.fixture(scope="module")
def guest(authority: Authority) -> Pair:
    return authority.signed("guest", name=GUEST)


@pytest.fixture
def rules() -> AccessRules:
    return AccessRules(
        daemon_uid=NOT_ADMIN,
        tenants=(
            Tenant(namespace="team", uids=frozenset({0}), certificates=frozenset({ROUTER})),
            Tenant(namespace="guests", certificates=frozenset({GUEST})),
        ),
    )


@pytest.fixture(scope="module")
def own(authority: Authority) -> Pair:
    return authority.signed("server", name="localhost")


@pytest.fixture
def files(authority: Authority, own: Pair, tmp_path: Path) -> CertificateFiles:
    """Copies that a test may change."""
    found = CertificateFiles(
        certificate=tmp_path / "server.crt",
        private_key=tmp_path / "server.key",
        client_authorities=tmp_path / "callers.crt",
    )
    found.private_key.touch(mode=0o600)
    found.private_key.write_bytes(own.private_key.read_bytes())
    found.certificate.write_bytes(own.certificate.read_bytes())
    found.client_authorities.write_bytes(authority.own.certificate.read_bytes())
    return found


@pytest.fixture
def remote(files: CertificateFiles) -> RemoteOptions:
    return RemoteOptions(
        host="127.0.0.1", port=free_port(), certificates=RenewedCertificates(files)
    )


@pytest.fixture
async def served(
    tmp_path: Path, rules: AccessRules, limits: SessionLimits, remote: RemoteOptions
) -> AsyncIterator[Served]:
    server = Served(tmp_path, rules=rules, limits=limits, remote=remote)
    await server.started()
    yield server
    server.stop.set()
    await server.task


@asynccontextmanager
async def channel_of(
    remote: RemoteOptions, authority: Authority, pair: Pair | None
) -> AsyncIterator[grpc.aio.Channel]:
    key, chain = (
        (None, None)
        if pair is None
        else (pair.private_key.read_bytes(), pair.certificate.read_bytes())
    )
    credentials = grpc.ssl_channel_credentials(authority.own.certificate.read_bytes(), key, chain)
    async with grpc.aio.secure_channel(remote.target, credentials) as channel:
        yield channel


async def ping(channel: grpc.aio.Channel) -> session_pb2.PingReply:
    return await session_pb2_grpc.SessionServiceStub(channel).Ping(session_pb2.PingRequest())


async def matched(channel: grpc.aio.Channel, metadata: tuple[tuple[str, str], ...] = ()) -> int:
    """How many chunks of the layout are found."""
    layout = session_pb2.RegisterLayoutRequest(layout=LAYOUT.to_proto())
    session = session_pb2_grpc.SessionServiceStub(channel)
    await session.RegisterLayout(layout, metadata=metadata)
    request = store_pb2.MatchRequest(layout_id=LAYOUT.layout_id, keys=KEYS)
    store = store_pb2_grpc.StoreServiceStub(channel)
    return (await store.Match(request, metadata=metadata)).matched_chunks


def reason_of(error: grpc.aio.AioRpcError) -> str:
    return dict(error.trailing_metadata() or ()).get(REASON_METADATA, "")


async def test_a_certificate_stands_in_for_the_token(
    served: Served, remote: RemoteOptions, authority: Authority, router: Pair
) -> None:
    async with channel_of(remote, authority, router) as channel:
        assert (await ping(channel)).epoch == 7
        assert await matched(channel) == 0


async def test_the_namespace_is_that_of_the_certificate(
    served: Served, remote: RemoteOptions, authority: Authority, router: Pair, guest: Pair
) -> None:
    """A caller finds what clients of its namespace have stored on the daemon's machine."""
    async with calling(served) as local:
        assert local.peer.welcome.namespace == "team"
        await local.put(KEYS)
        found = []
        for pair in (router, guest):
            async with channel_of(remote, authority, pair) as channel:
                found.append(await matched(channel))
    assert found == [len(KEYS), 0]


async def test_verbs_with_bytes_and_those_of_operators_are_refused(
    served: Served, remote: RemoteOptions, authority: Authority, router: Pair
) -> None:
    async with channel_of(remote, authority, router) as channel:
        store = store_pb2_grpc.StoreServiceStub(channel)
        for call in (
            store.Put(store_pb2.PutRequest()),
            store.Read(store_pb2.ReadRequest()),
            store.Append(store_pb2.AppendRequest()),
            admin_pb2_grpc.AdminServiceStub(channel).Stats(admin_pb2.StatsRequest()),
            admin_pb2_grpc.OperatorServiceStub(channel).Drain(admin_pb2.DrainRequest()),
        ):
            with pytest.raises(grpc.aio.AioRpcError, match="not served over TCP") as info:
                await call
            assert reason_of(info.value) == Reason.ACCESS_REFUSED.name


async def test_what_callers_over_tcp_left_open_stayed_for_good(
    served: Served, remote: RemoteOptions, authority: Authority, router: Pair
) -> None:
    """Bug: their session ends with the daemon, so nothing gave their open tails back."""
    async with channel_of(remote, authority, router) as channel:
        await matched(channel)
        stub = sequence_pb2_grpc.SequenceServiceStub(channel)
        new = sequence_pb2.CreateSequenceRequest(name="a", layout_id=LAYOUT.layout_id)
        await stub.Create(new)
        new.ephemeral = True
        for call in (
            stub.Create(new),
            stub.TruncateBack(sequence_pb2.TruncateSequenceRequest(name="a", drop_tokens=1)),
        ):
            with pytest.raises(grpc.aio.AioRpcError, match="no session of its own") as info:
                await call
            assert reason_of(info.value) == Reason.FIELD_INVALID.name


async def test_a_certificate_that_no_tenant_names_is_refused(
    served: Served, remote: RemoteOptions, authority: Authority
) -> None:
    stranger = authority.signed("stranger", name="stranger.example")
    async with channel_of(remote, authority, stranger) as channel:
        with pytest.raises(grpc.aio.AioRpcError, match=r"stranger\.example") as info:
            await ping(channel)
    assert reason_of(info.value) == Reason.ACCESS_REFUSED.name


async def test_a_token_does_not_stand_in_for_a_certificate(
    served: Served, remote: RemoteOptions, authority: Authority, guest: Pair
) -> None:
    """A token of another namespace changes nothing over TCP."""
    async with calling(served) as local, channel_of(remote, authority, guest) as channel:
        await local.put(KEYS)
        metadata = local.peer.metadata
        assert await matched(channel, metadata) == 0


@pytest.mark.parametrize("kind", ["none", "of another authority", "expired"])
async def test_without_a_valid_certificate_nobody_is_heard(
    served: Served, remote: RemoteOptions, authority: Authority, tmp_path: Path, kind: str
) -> None:
    pair = None
    if kind == "of another authority":
        pair = Authority(tmp_path, name="another").signed("router", name=ROUTER)
    elif kind == "expired":
        pair = authority.signed("expired", name=ROUTER, days=-1)
    async with channel_of(remote, authority, pair) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as info:
            await ping(channel)
    assert info.value.code() is grpc.StatusCode.UNAVAILABLE
    assert reason_of(info.value) == ""


async def test_plain_text_is_not_heard(served: Served, remote: RemoteOptions) -> None:
    async with grpc.aio.insecure_channel(remote.target) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as info:
            await ping(channel)
    assert info.value.code() is grpc.StatusCode.UNAVAILABLE


def shown_certificate(remote: RemoteOptions, authority: Authority, pair: Pair) -> str:
    context = ssl.create_default_context(cafile=str(authority.own.certificate))
    context.load_cert_chain(pair.certificate, pair.private_key)
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection((remote.host, remote.port)) as connection,
        context.wrap_socket(connection, server_hostname="localhost") as secured,
    ):
        shown = secured.getpeercert(binary_form=True)
    assert shown is not None
    return ssl.DER_cert_to_PEM_cert(shown)


async def test_new_certificates_are_shown_without_a_restart(
    served: Served,
    remote: RemoteOptions,
    authority: Authority,
    router: Pair,
    files: CertificateFiles,
) -> None:
    before = await asyncio.to_thread(shown_certificate, remote, authority, router)
    assert before == files.certificate.read_text()
    other = authority.signed("renewed", name="localhost")
    files.certificate.write_bytes(other.certificate.read_bytes())
    files.private_key.write_bytes(other.private_key.read_bytes())
    after = await asyncio.to_thread(shown_certificate, remote, authority, router)
    assert after == other.certificate.read_text() != before


async def test_callers_of_an_authority_that_is_no_longer_named_are_shut_out(
    served: Served,
    remote: RemoteOptions,
    authority: Authority,
    router: Pair,
    files: CertificateFiles,
    tmp_path: Path,
) -> None:
    async with channel_of(remote, authority, router) as channel:
        await ping(channel)
    other = Authority(tmp_path, name="another")
    files.client_authorities.write_bytes(other.own.certificate.read_bytes())
    async with channel_of(remote, authority, router) as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await ping(channel)


async def test_an_address_that_is_taken(
    tmp_path: Path, rules: AccessRules, limits: SessionLimits, remote: RemoteOptions
) -> None:
    with socket.create_server((remote.host, remote.port)):
        server = Served(tmp_path, rules=rules, limits=limits, remote=remote)
        with pytest.raises(ListenError, match=r"correct remote\.listen"):
            await server.started()


async def test_too_few_sessions_for_the_tenants_with_certificates(
    tmp_path: Path, rules: AccessRules, remote: RemoteOptions
) -> None:
    limits = SessionLimits(arena_bytes_max=4096, arenas_bytes_max=4096, sessions_max=9)
    server = Served(tmp_path, rules=rules, limits=limits, remote=remote)
    with pytest.raises(ListenError, match=r"arenas_bytes_max"):
        await server.started()
    assert server.session_count == 0
