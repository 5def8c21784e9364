"""Who may use the store, and which namespace is theirs. Pure decisions.

The namespace is chosen here, from what the kernel says about the peer, or from the names in its
certificate; a client can narrow it by a salt but never leave it.
"""

from collections.abc import Iterable
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
    certificates: frozenset[str] = frozenset()
    """Names in certificates of callers on other machines."""
    huge_pages: bool = False

    def includes(self, credentials: Credentials) -> bool:
        """Whether the peer is one of the users or in one of the groups."""
        return (
            credentials.uid in self.uids
            or credentials.gid in self.gids
            or not self.gids.isdisjoint(credentials.groups)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a peer may do. Administrators may use the admin service.

    ``huge_pages`` tells whether its arena may lie on them. No seal keeps a client from
    freeing pages of its arena, and where the pool of huge pages is empty then, the daemon's
    next touch ends it: administrators could do that anyway, others must be trusted.
    """

    namespace: str
    admin: bool
    huge_pages: bool


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
                huge_pages = admin or tenant.huge_pages
                return Grant(namespace=tenant.namespace, admin=admin, huge_pages=huge_pages)
        if not admin:
            return None
        return Grant(namespace=DEFAULT_NAMESPACE, admin=True, huge_pages=True)

    def certificate_grant(self, names: Iterable[str]) -> Grant | None:
        """What a caller on another machine may do, who is never an administrator; None: nothing."""
        known = frozenset(names)
        for tenant in self.tenants:
            if not tenant.certificates.isdisjoint(known):
                return _certificate_grant(tenant)
        return None

    def certificate_grants(self) -> tuple[Grant, ...]:
        """All that callers on other machines can get, one for each namespace."""
        grants = (_certificate_grant(tenant) for tenant in self.tenants if tenant.certificates)
        return tuple(dict.fromkeys(grants))


def _certificate_grant(tenant: Tenant) -> Grant:
    return Grant(namespace=tenant.namespace, admin=False, huge_pages=False)
