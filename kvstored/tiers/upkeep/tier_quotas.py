"""Quotas of namespaces that change while the store is open."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvstored.tiers.namespaces import NamespaceLimits
from kvstored.tiers.policy.shares import GUARANTEED_MAX, NO_QUOTA, Quotas, TierUse


class QuotaError(ValueError):
    """A quota that cannot be; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class SharedTier:
    """A tier that namespaces share."""

    use: TierUse
    capacity_bytes: int


class TierQuotas:
    """The quotas of both tiers. Thread-safe.

    Only namespaces that had a quota at the start have accounts of their own: those can change.
    """

    def __init__(
        self,
        namespaces: Sequence[NamespaceLimits],
        ttl_s: float | None,
        *,
        dram: SharedTier,
        devices: SharedTier,
    ) -> None:
        self._now = tuple(namespaces)
        self._ttl_s = ttl_s
        self._dram = dram
        self._devices = devices
        self._lock = threading.Lock()

    @property
    def now(self) -> tuple[NamespaceLimits, ...]:
        """Of each namespace that had a quota at the start."""
        return self._now

    def of(self, name: str) -> NamespaceLimits:
        """The quota of a namespace; raises QuotaError where it cannot change."""
        for one in self._now:
            if one.name == name:
                return one
        raise QuotaError(
            f"the namespace {name!r} had no quota when the daemon started; add it to "
            "[[quotas.namespaces]] and restart"
        )

    def change(self, limits: NamespaceLimits) -> None:
        """Gives a namespace another quota of both tiers; raises QuotaError."""
        with self._lock:
            before = self.of(limits.name)
            after = replace(before, dram=limits.dram, devices=limits.devices)
            self._set(tuple(after if one is before else one for one in self._now))

    def reload(self, namespaces: Sequence[NamespaceLimits], ttl_s: float | None) -> list[str]:
        """Takes the quotas of a configuration; returns what has to wait for a restart.

        Raises QuotaError, and changes nothing then.
        """
        wanted = {one.name: one for one in namespaces}
        with self._lock:
            after = tuple(
                replace(one, dram=new.dram, devices=new.devices)
                if (new := wanted.get(one.name))
                else replace(one, dram=NO_QUOTA, devices=NO_QUOTA)
                for one in self._now
            )
            self._set(after)
        known = {one.name: one for one in self._now}
        late = [f"the new quota of {name!r}" for name in wanted if name not in known]
        late += [
            f"ttl_s of {name!r}"
            for name, one in wanted.items()
            if name in known and known[name].ttl_s != one.ttl_s
        ]
        return late + (["quotas.ttl_s"] if ttl_s != self._ttl_s else [])

    def _set(self, after: tuple[NamespaceLimits, ...]) -> None:
        for tier, shared, quotas in (
            ("DRAM", self._dram, {one.namespace_id: one.dram for one in after}),
            ("the devices", self._devices, {one.namespace_id: one.devices for one in after}),
        ):
            guaranteed = sum(quota.guaranteed_bytes for quota in quotas.values())
            if guaranteed > GUARANTEED_MAX * shared.capacity_bytes:
                raise QuotaError(
                    f"the guaranteed shares of {tier} ({guaranteed} bytes) are more than "
                    f"{GUARANTEED_MAX} of its capacity ({shared.capacity_bytes}); lower one"
                )
        # As a whole: who looks at them meanwhile sees those of before or of after.
        self._dram.use.quotas = Quotas({one.namespace_id: one.dram for one in after})
        self._devices.use.quotas = Quotas({one.namespace_id: one.devices for one in after})
        self._now = after
