"""Who gets which namespace."""

import pytest

from kvstored.server.access import AccessRules, Credentials, Grant, Tenant

RULES = AccessRules(
    daemon_uid=900,
    tenants=(
        Tenant(namespace="blue", uids=frozenset({1000}), gids=frozenset({50})),
        Tenant(
            namespace="green", uids=frozenset({1000, 1001}), gids=frozenset({60}), huge_pages=True
        ),
    ),
)


def peer(uid: int, gid: int = 1, *groups: int) -> Credentials:
    return Credentials(pid=1, uid=uid, gid=gid, groups=frozenset(groups))


@pytest.mark.parametrize(
    ("credentials", "grant"),
    [
        (peer(1000), Grant(namespace="blue", admin=False, huge_pages=False)),
        (peer(1001), Grant(namespace="green", admin=False, huge_pages=True)),
        (peer(1002, 50), Grant(namespace="blue", admin=False, huge_pages=False)),
        (peer(1002, 1, 2, 60), Grant(namespace="green", admin=False, huge_pages=True)),
        (peer(900), Grant(namespace="default", admin=True, huge_pages=True)),
        (peer(900, 50), Grant(namespace="blue", admin=True, huge_pages=True)),
        (peer(900, 60), Grant(namespace="green", admin=True, huge_pages=True)),
        (peer(0), Grant(namespace="default", admin=True, huge_pages=True)),
        (peer(1002, 1, 2), None),
    ],
)
def test_grant(credentials: Credentials, grant: Grant | None) -> None:
    assert RULES.grant(credentials) == grant


REMOTE = AccessRules(
    daemon_uid=900,
    tenants=(
        Tenant(namespace="blue", uids=frozenset({0}), certificates=frozenset({"a", "b"})),
        Tenant(namespace="green", gids=frozenset({60}), certificates=frozenset({"b", "c"})),
        Tenant(namespace="red", uids=frozenset({1002})),
        Tenant(namespace="blue", uids=frozenset({1003}), certificates=frozenset({"d"})),
    ),
)


@pytest.mark.parametrize(
    ("names", "namespace"),
    [(("x", "a"), "blue"), (("c",), "green"), (("b",), "blue"), (("d",), "blue"), (("x",), None)],
)
def test_the_first_tenant_that_names_a_certificate_gives_the_namespace(
    names: tuple[str, ...], namespace: str | None
) -> None:
    """Whatever the tenant's users are: a caller on another machine is none of them."""
    grant = REMOTE.certificate_grant(names)
    expected = namespace and Grant(namespace=namespace, admin=False, huge_pages=False)
    assert grant == expected


def test_what_certificates_can_get_is_named_once() -> None:
    namespaces = [grant.namespace for grant in REMOTE.certificate_grants()]
    assert namespaces == ["blue", "green"]
    assert RULES.certificate_grants() == ()


def test_without_tenants_only_the_own_user_and_root_may_come() -> None:
    rules = AccessRules(daemon_uid=900)
    assert rules.grant(peer(900)) is not None
    assert rules.grant(peer(0)) is not None
    assert rules.grant(peer(1000, 900, 900)) is None
