"""Who may use the store, and which namespace is theirs. Pure decisions.

The namespace is chosen here, from what the kernel says about the peer; a client can
narrow it by a salt but never leave it.
"""

from dataclasses import dataclass

DEFAULT_NAMESPACE = "default"
ROOT_UID = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What the kernel says about the process at the other end of a socket."""

    pid: int
    uid: int
    gid: int
    groups: frozenset[int] = frozenset()
    """Supplementary groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """Unix users and groups that share one namespace."""

    namespace: str
    uids: frozenset[int] = frozenset()
    gids: frozenset[int] = frozenset()

    def includes(self, credentials: Credentials) -> bool:
        """Whether the peer is one of the users or in one of the groups."""
        return (
            credentials.uid in self.uids
            or credentials.gid in self.gids
            or not self.gids.isdisjoint(credentials.groups)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a peer may do. Administrators may use the admin service."""

    namespace: str
    admin: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRules:
    """The first tenant that includes the peer gives the namespace.

    The daemon's own user and root are administrators, and use the default namespace
    where no tenant includes them. Everybody else is refused.
    """

    daemon_uid: int
    tenants: tuple[Tenant, ...] = ()

    def grant(self, credentials: Credentials) -> Grant | None:
        """What the peer may do; None when it is refused."""
        admin = credentials.uid in (self.daemon_uid, ROOT_UID)
        for tenant in self.tenants:
            if tenant.includes(credentials):
                return Grant(namespace=tenant.namespace, admin=admin)
        return Grant(namespace=DEFAULT_NAMESPACE, admin=True) if admin else None
