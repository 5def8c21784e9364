"""One tier as namespaces share it: their quotas, who takes how much, and what goes for whom.

Every namespace with a quota has an *account*; all others share one. Each account has an order of
eviction of its own, so that nobody looks through the chunks of others to find those that may go.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from kvstored.tiers.policy.protocol import EvictionPolicy

NamespaceT = TypeVar("NamespaceT", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """Of one namespace in one tier. ``guaranteed_bytes`` are nobody else's to take.

    It never has more than ``limit_bytes``, None for as much as there is.
    """

    guaranteed_bytes: int = 0
    limit_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.guaranteed_bytes < 0:
            raise ValueError("a guaranteed share is not below 0")
        if self.limit_bytes is not None and self.limit_bytes < self.guaranteed_bytes:
            raise ValueError("a limit is not below the guaranteed share")


GUARANTEED_MAX = 0.9
"""Part of a tier that may be guaranteed: the rest is what chunks leave of their slabs."""
NO_QUOTA = Quota()
"""Sure of nothing, and without a limit."""


@dataclass(frozen=True, slots=True)
class Quotas(Generic[NamespaceT]):
    """The quotas of all namespaces; those without one have ``NO_QUOTA``."""

    quotas: Mapping[NamespaceT, Quota]

    def of(self, namespace: NamespaceT) -> Quota:
        """The quota of a namespace."""
        return self.quotas.get(namespace, NO_QUOTA)

    def givers(
        self, used_bytes: Mapping[NamespaceT, int], taker: NamespaceT, wanted_bytes: int
    ) -> Iterator[NamespaceT]:
        """Namespaces whose victims may make room for ``taker``, the first to ask first.

        At its limit only ``taker`` itself gives. Else those above their guaranteed share, the
        furthest above first; then ``taker`` with what it has. Nobody else gives of its share.
        """
        limit = self.of(taker).limit_bytes
        taken_bytes = used_bytes.get(taker, 0)
        if limit is None or taken_bytes + wanted_bytes <= limit:
            above = {
                namespace: used - self.of(namespace).guaranteed_bytes
                for namespace, used in used_bytes.items()
                if used > self.of(namespace).guaranteed_bytes
            }
            yield from sorted(above, key=lambda namespace: -above[namespace])
            if taker in above:
                return
        if taken_bytes:
            yield taker

    def protected_bytes(self, namespace: NamespaceT, capacity_bytes: int) -> int:
        """How much hints of a namespace may keep: its limit; without one, what nobody else has.

        That is its guaranteed share and what nobody else is sure of. So hints for everything keep
        nobody else's share out.
        """
        others = (quota for name, quota in self.quotas.items() if name != namespace)
        free_bytes = max(0, capacity_bytes - sum(quota.guaranteed_bytes for quota in others))
        limit = self.of(namespace).limit_bytes
        return free_bytes if limit is None else min(limit, free_bytes)


KeyT = TypeVar("KeyT", bound=Hashable)

OTHERS = b""
"""The account of all namespaces without a quota."""
NOBODY = b"-"
"""Takes for no account: only what is above the guaranteed shares goes for it."""


class TierUse:
    """Bytes that each account takes of a tier. The owner serialises the calls."""

    def __init__(self, quotas: Quotas[bytes]) -> None:
        self.quotas = quotas
        self._used: dict[bytes, int] = {}

    @property
    def is_divided(self) -> bool:
        """Whether any namespace has a quota."""
        return bool(self.quotas.quotas)

    def account(self, namespace: bytes) -> bytes:
        """The account of a namespace."""
        return namespace if namespace in self.quotas.quotas else OTHERS

    def used_bytes(self, account: bytes) -> int:
        """What an account takes."""
        return self._used.get(account, 0)

    def add(self, namespace: bytes, byte_count: int) -> None:
        """Counts bytes that a namespace takes from now on, or gives back if below 0."""
        account = self.account(namespace)
        self._used[account] = self.used_bytes(account) + byte_count

    def excess_bytes(self, namespace: bytes, wanted_bytes: int) -> int:
        """How much of its own a namespace has to give up before it takes more."""
        account = self.account(namespace)
        limit = self.quotas.of(account).limit_bytes
        return 0 if limit is None else max(0, self.used_bytes(account) + wanted_bytes - limit)

    def givers(self, taker: bytes, wanted_bytes: int) -> list[bytes]:
        """Accounts whose chunks may go for a namespace, or for NOBODY; the first to ask first."""
        if not self.is_divided:
            return [OTHERS]
        account = NOBODY if taker == NOBODY else self.account(taker)
        return list(self.quotas.givers(self._used, account, wanted_bytes))

    def may_go(self, taker: bytes, going: Iterable[tuple[bytes, int]]) -> list[bool]:
        """Which chunks may go for a namespace, one after the other, by their namespace and bytes.

        Those of its own account, and those of accounts that are above their guaranteed share
        when it is their turn.
        """
        own = NOBODY if taker == NOBODY else self.account(taker)
        left = dict(self._used)
        answers = []
        for namespace, byte_count in going:
            account = self.account(namespace)
            used = left.get(account, 0)
            answers.append(account == own or used > self.quotas.of(account).guaranteed_bytes)
            if answers[-1]:
                left[account] = used - byte_count
        return answers


class SharedPolicy(Generic[KeyT]):
    """Implements ``EvictionPolicy`` with a policy for each account."""

    def __init__(
        self, policies: Mapping[bytes, EvictionPolicy[KeyT]], *, account_of: Callable[[KeyT], bytes]
    ) -> None:
        self._policies = policies
        self._account_of = account_of

    def of(self, account: bytes) -> EvictionPolicy[KeyT]:
        """The policy of an account."""
        return self._policies[account]

    def insert(self, key: KeyT, group: int) -> None:
        """Tells the key's account."""
        self._of_key(key).insert(key, group)

    def touch(self, keys: Sequence[KeyT], *, together: bool = False) -> None:
        """Tells each account of its keys."""
        for account, own in self._by_account(keys).items():
            self._policies[account].touch(own, together=together)

    def remove(self, key: KeyT) -> None:
        """Tells the key's account."""
        self._of_key(key).remove(key)

    def hint(self, places: Mapping[KeyT, int | None]) -> None:
        """Tells each account of its keys."""
        for account, own in self._by_account(places).items():
            self._policies[account].hint({key: places[key] for key in own})

    def is_queued(self, key: KeyT) -> bool:
        """Whether hints keep a key in its account."""
        return self._of_key(key).is_queued(key)

    def victims(self, group: int | None = None) -> Iterator[KeyT]:
        """Keys of one account after the other, each in its order."""
        for policy in self._policies.values():
            yield from policy.victims(group)

    def _of_key(self, key: KeyT) -> EvictionPolicy[KeyT]:
        return self._policies[self._account_of(key)]

    def _by_account(self, keys: Iterable[KeyT]) -> dict[bytes, Sequence[KeyT]]:
        if len(self._policies) == 1:
            return dict.fromkeys(self._policies, tuple(keys))
        found: dict[bytes, list[KeyT]] = {}
        for key in keys:
            found.setdefault(self._account_of(key), []).append(key)
        return dict(found)


@dataclass(frozen=True, slots=True)
class TierShares(Generic[KeyT]):
    """What accounts take of a tier, and the order in which the keys of each go."""

    use: TierUse
    policy: SharedPolicy[KeyT]

    @classmethod
    def divided(
        cls,
        quotas: Mapping[bytes, Quota],
        make: Callable[[bytes], EvictionPolicy[KeyT]],
        namespace_of: Callable[[KeyT], bytes],
    ) -> "TierShares[KeyT]":
        """Shares of a tier without keys; ``make`` gives each account its policy."""
        use = TierUse(Quotas(quotas))
        policies = {account: make(account) for account in (OTHERS, *quotas)}
        return cls(
            use, SharedPolicy(policies, account_of=lambda key: use.account(namespace_of(key)))
        )

    @classmethod
    def undivided(cls, policy: EvictionPolicy[KeyT]) -> "TierShares[KeyT]":
        """A tier that all use alike, in the order of one policy."""
        return cls(TierUse(Quotas({})), SharedPolicy({OTHERS: policy}, account_of=lambda _: OTHERS))

    def orders(
        self, taker: bytes, group: int | None, wanted_bytes: int
    ) -> Iterator[Iterator[KeyT]]:
        """Keys of a group, or of all, that go for a namespace: an order for each who gives."""
        for account in self.use.givers(taker, wanted_bytes):
            yield self.policy.of(account).victims(group)
