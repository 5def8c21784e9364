"""The sections of the configuration that concern users: who they are, and what they may have."""

from typing import Annotated

from pydantic import ByteSize, Field, model_validator

from kvstored.config_values import Account, Bytes, Section, Size
from kvstored.server.access import DEFAULT_NAMESPACE
from kvstored.tiers.policy.shares import GUARANTEED_MAX, Quota

TTL_S_MIN = 0.1
TTL_S_MAX = 10 * 366 * 24 * 3600

Seconds = Annotated[float, Field(ge=TTL_S_MIN, le=TTL_S_MAX)]


class TenantSection(Section):
    """Unix users and groups, and certificates, that share one namespace."""

    namespace: Annotated[str, Field(min_length=1, max_length=100, pattern="^[^/\x00]+$")]
    users: tuple[Account, ...] = ()
    groups: tuple[Account, ...] = ()
    certificates: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Names in the certificates of callers over TCP: a common name, or an alternative one."""
    huge_pages: bool = False
    """Whether their arenas may lie on huge pages: a client that frees pages of such an arena
    under the daemon can end it, so that is for users who are trusted with the service."""

    @model_validator(mode="after")
    def _possible(self) -> "TenantSection":
        if not self.users and not self.groups and not self.certificates:
            raise ValueError(
                f"tenant {self.namespace!r} names neither users nor groups nor certificates"
            )
        return self


class AccessSection(Section):
    """Who may connect besides the daemon's own user and root; the first match counts."""

    tenants: tuple[TenantSection, ...] = ()


class NamespaceQuota(Section):
    """What one namespace may have of each tier, and what nobody else takes from it."""

    namespace: Annotated[str, Field(min_length=1)]
    dram_guaranteed_bytes: Size = ByteSize(0)
    dram_limit_bytes: Bytes | None = None
    """Unset leaves it as much as there is."""
    device_guaranteed_bytes: Size = ByteSize(0)
    device_limit_bytes: Bytes | None = None
    """Of all devices together."""
    ttl_s: Seconds | None = None
    """Unset: as ``ttl_s`` of the section says."""

    @model_validator(mode="after")
    def _possible(self) -> "NamespaceQuota":
        for tier in ("dram", "device"):
            guaranteed = getattr(self, f"{tier}_guaranteed_bytes")
            limit = getattr(self, f"{tier}_limit_bytes")
            if limit is not None and limit < guaranteed:
                raise ValueError(
                    f"{tier}_limit_bytes ({limit}) of the namespace {self.namespace!r} is below "
                    f"its {tier}_guaranteed_bytes ({guaranteed})"
                )
        return self

    @property
    def dram(self) -> Quota:
        """Of DRAM."""
        return Quota(guaranteed_bytes=self.dram_guaranteed_bytes, limit_bytes=self.dram_limit_bytes)

    @property
    def devices(self) -> Quota:
        """Of all devices together."""
        return Quota(
            guaranteed_bytes=self.device_guaranteed_bytes, limit_bytes=self.device_limit_bytes
        )


class QuotasSection(Section):
    """How namespaces share the tiers, and how long what nobody uses stays."""

    ttl_s: Seconds | None = None
    """Chunks that were not used for so long go; unset keeps them until their room is needed."""
    namespaces: tuple[NamespaceQuota, ...] = ()

    @model_validator(mode="after")
    def _possible(self) -> "QuotasSection":
        names = [quota.namespace for quota in self.namespaces]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"namespaces names {min(twice)!r} twice")
        return self

    def check_names(self, access: AccessSection) -> None:
        """Raises ValueError for a namespace that nobody can use."""
        known = {DEFAULT_NAMESPACE, *(tenant.namespace for tenant in access.tenants)}
        for quota in self.namespaces:
            if quota.namespace not in known:
                raise ValueError(
                    f"quotas.namespaces names {quota.namespace!r}, which is no namespace of "
                    f"access.tenants; name one of {', '.join(sorted(known))}"
                )

    def check_room(self, *, dram_bytes: int, device_bytes: int) -> None:
        """Raises ValueError when a tier cannot have all that is guaranteed."""
        for tier, capacity_bytes in (("dram", dram_bytes), ("device", device_bytes)):
            guaranteed = sum(getattr(one, f"{tier}_guaranteed_bytes") for one in self.namespaces)
            if guaranteed > GUARANTEED_MAX * capacity_bytes:
                raise ValueError(
                    f"{tier}_guaranteed_bytes of all quotas.namespaces ({guaranteed}) are more "
                    f"than {GUARANTEED_MAX} of the capacity ({capacity_bytes})"
                )
