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


def test_without_tenants_only_the_own_user_and_root_may_come() -> None:
    rules = AccessRules(daemon_uid=900)
    assert rules.grant(peer(900)) is not None
    assert rules.grant(peer(0)) is not None
    assert rules.grant(peer(1000, 900, 900)) is None
