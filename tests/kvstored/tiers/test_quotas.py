"""Namespaces with limits and guaranteed shares of a whole store."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from kvstored.format.geometry import class_bytes
from kvstored.format.identity import ChunkId, namespace_id
from kvstored.tiers.chunks import nvme_room
from kvstored.tiers.chunks.frame import OpenFrame
from kvstored.tiers.chunks.open_frames import Helps
from kvstored.tiers.chunks.requests import PutOutcome
from kvstored.tiers.namespaces import NamespaceLimits
from kvstored.tiers.policy.shares import OTHERS, Quota
from kvstored.tiers.sequences.sequences import Caller
from kvstored_contract.layout import LayerState, StateKind, StateLayout
from kvstored_contract.reasons import Reason
from tests.kvstored.tiers.hints.test_hints import hint
from tests.support.devices import GatedDevice, Wrapping
from tests.support.stores import LAYOUT, MIB, NAMESPACE, StoreUnderTest, key, open_store
from tests.support.waiting import SOON_S, wait_until

SIZE = class_bytes(LAYOUT)
PER_STORE = (MIB - 4096) // SIZE * 8
TEAM = namespace_id("team")
ANY = namespace_id("any")
"""Has no quota."""
WIDE = StateLayout(
    model="wide", dtype="float32", layers=(LayerState(StateKind.KV, 2048),) * 8, chunk_tokens=16
)
"""Chunks of another size class."""

BROAD = StateLayout(
    model="broad", dtype="float32", layers=(LayerState(StateKind.KV, 60_000),), chunk_tokens=16
)
"""Chunks nearly as large as a slab."""


def quota(*, sure: int = 0, most: int | None = None) -> Quota:
    """In chunks."""
    return Quota(guaranteed_bytes=sure * SIZE, limit_bytes=None if most is None else most * SIZE)


def team(*, sure: int = 0, most: int | None = None) -> NamespaceLimits:
    """Of the devices, in chunks."""
    return NamespaceLimits(name="team", devices=quota(sure=sure, most=most))


def put(
    opened: StoreUnderTest, namespace: bytes, numbers: Iterable[int], layout: StateLayout = LAYOUT
) -> None:
    for number in numbers:
        (ticket,) = opened.put([number], namespace_id=namespace, layout=layout)
        assert ticket.durable is not None
        assert ticket.durable.result() is Reason.UNSPECIFIED


def stored(opened: StoreUnderTest, namespace: bytes, numbers: Iterable[int]) -> list[int]:
    chunks = {number: ChunkId(namespace, key(number)) for number in numbers}
    found = opened.store.read_path.are_visible(list(chunks.values()))
    return [number for number, is_stored in zip(chunks, found, strict=True) if is_stored]


def in_dram(opened: StoreUnderTest, namespace: bytes, numbers: Iterable[int]) -> list[int]:
    dram = opened.store._dram
    return [number for number in numbers if dram.contains(ChunkId(namespace, key(number)))]


def device_use(opened: StoreUnderTest, account: bytes = TEAM) -> int:
    return opened.store._room.shares.use.used_bytes(account)


def test_a_namespace_at_its_limit_evicts_its_own(tmp_path: Path) -> None:
    with open_store(tmp_path, namespaces=(team(most=10),)) as opened:
        put(opened, ANY, range(20))
        for number in range(40):
            put(opened, TEAM, [number])
            wait_until(lambda: device_use(opened) <= 10 * SIZE)
        assert stored(opened, TEAM, range(40)) == list(range(30, 40))
        assert stored(opened, ANY, range(20)) == list(range(20))
        assert opened.stats().counters["evicted_chunks"] == 30


def test_many_small_chunks_go_at_once_for_a_large_one_at_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as a large chunk has bytes, not as many as large chunks would have to go."""
    monkeypatch.setattr(nvme_room, "ROUNDS_MAX", 1)
    limit_bytes = class_bytes(BROAD) + SIZE
    limits = NamespaceLimits(name="team", devices=Quota(limit_bytes=limit_bytes))
    with open_store(tmp_path, namespaces=(limits,)) as opened:
        put(opened, TEAM, range(limit_bytes // SIZE))
        put(opened, TEAM, [1000], layout=BROAD)
        assert stored(opened, TEAM, [1000]) == [1000]


def test_chunks_on_their_way_count(tmp_path: Path) -> None:
    gates = Wrapping(GatedDevice)
    with open_store(tmp_path, wrap=gates, namespaces=(team(most=10),)) as opened:
        for gate in gates:
            gate.gate.clear()
        tickets = opened.put(list(range(14)), namespace_id=TEAM, timeout_s=SOON_S)
        outcomes = [ticket.outcome for ticket in tickets]
        assert outcomes == [PutOutcome.STORED] * 10 + [PutOutcome.REJECTED] * 4
        assert tickets[-1].reason is Reason.STORE_FULL
        for gate in gates:
            gate.gate.set()
        for ticket in tickets[:10]:
            assert ticket.durable is not None
            ticket.durable.result()
        wait_until(lambda: device_use(opened) == 10 * SIZE)


def test_what_is_pinned_stays_at_the_limit(tmp_path: Path) -> None:
    with open_store(tmp_path, namespaces=(team(most=3),)) as opened:
        put(opened, TEAM, range(3))
        pinned = opened.store.pin(TEAM, [key(number) for number in range(3)])
        (ticket,) = opened.put([3], namespace_id=TEAM)
        assert ticket.reason is Reason.STORE_FULL
        opened.store.unpin(pinned[1:2])
        put(opened, TEAM, [3])
        assert stored(opened, TEAM, range(4)) == [0, 2, 3]
        opened.store.unpin([pinned[0], pinned[2]])


def test_a_guaranteed_share_outlives_everything_that_others_put(tmp_path: Path) -> None:
    with open_store(tmp_path, namespaces=(team(sure=40),)) as opened:
        put(opened, TEAM, range(40))
        put(opened, ANY, range(2 * PER_STORE))
        assert stored(opened, TEAM, range(40)) == list(range(40))
        # Of others the last ones are there, as many as fit beside it.
        last = range(2 * PER_STORE - (PER_STORE - 40 - 16), 2 * PER_STORE)
        assert stored(opened, ANY, last) == list(last)


def test_above_its_share_a_namespace_gives_as_others_do(tmp_path: Path) -> None:
    with open_store(tmp_path, namespaces=(team(sure=40),)) as opened:
        put(opened, TEAM, range(PER_STORE))
        put(opened, ANY, range(PER_STORE))
        left = stored(opened, TEAM, range(PER_STORE))
        # Both are about as far above what they are sure of.
        assert abs((len(left) - 40) - len(stored(opened, ANY, range(PER_STORE)))) <= 33
        assert left == list(range(PER_STORE - len(left), PER_STORE))


def test_another_size_class_leaves_slabs_with_guaranteed_chunks_alone(tmp_path: Path) -> None:
    with open_store(tmp_path, namespaces=(team(sure=40),)) as opened:
        opened.fill(8)
        for number in range(40):
            put(opened, TEAM, [number])
            put(opened, ANY, range(4 * number, 4 * number + 4))
        put(opened, ANY, range(1000, 1100))
        put(opened, ANY, range(2000, 2012), layout=WIDE)
        assert stored(opened, TEAM, range(40)) == list(range(40))


def test_a_tenant_that_hints_everything_evicts_nobodys_share(tmp_path: Path) -> None:
    sure = NamespaceLimits(
        name="team",
        devices=Quota(guaranteed_bytes=40 * SIZE),
        dram=Quota(guaranteed_bytes=20 * SIZE),
    )
    with open_store(tmp_path, namespaces=(sure, NamespaceLimits(name="any"))) as opened:
        put(opened, TEAM, range(40))
        everything = {f"{first}": list(range(first, first + 10)) for first in range(0, 400, 10)}
        hint(opened, everything, caller=Caller(ANY, 7))
        put(opened, ANY, range(400))
        assert stored(opened, TEAM, range(40)) == list(range(40))
        assert set(in_dram(opened, TEAM, range(40))) >= set(range(20, 40))
        protected = opened.store._hinted_tiers(opened.store._store.extents.allocator)
        assert [tier.protected_bytes(ANY) for tier in protected] == [
            2 * MIB - int(2 * MIB * 0.05) - 20 * SIZE,
            8 * MIB - 40 * SIZE,
        ]


def test_hints_protect_at_most_the_limit(tmp_path: Path) -> None:
    with open_store(tmp_path, namespaces=(team(most=5),)) as opened:
        hint(opened, {"all": list(range(40))}, caller=Caller(TEAM, 7))
        put(opened, TEAM, range(40))
        assert len(stored(opened, TEAM, range(40))) == 5
        queued = opened.store._room._policy
        hinted = [queued.is_queued(ChunkId(TEAM, key(number))) for number in range(40)]
        assert sum(hinted) == 5


def test_a_changed_limit_did_not_reach_hints_while_anybody_waited(tmp_path: Path) -> None:
    """Bug: a head kept the size that it had when its first name came."""
    with open_store(tmp_path, namespaces=(team(most=5),)) as opened:
        put(opened, TEAM, range(5))
        who, queued = Caller(TEAM, 7), opened.store._room._policy

        def hinted_count() -> int:
            return sum(queued.is_queued(ChunkId(TEAM, key(number))) for number in range(5))

        hint(opened, {"all": list(range(5))}, caller=who)
        assert hinted_count() == 5
        opened.store.upkeep.quotas.change(team(most=2))
        hint(opened, {"one": [0]}, caller=who, versions=(2, 1))
        assert hinted_count() == 2


def test_shares_of_dram(tmp_path: Path) -> None:
    limits = NamespaceLimits(name="team", dram=quota(sure=10, most=12))
    with open_store(tmp_path, namespaces=(limits,)) as opened:
        put(opened, TEAM, range(20))
        assert in_dram(opened, TEAM, range(20)) == list(range(8, 20))
        put(opened, ANY, range(150))
        assert len(in_dram(opened, TEAM, range(20))) >= 10
        assert stored(opened, TEAM, range(20)) == list(range(20))


def test_open_tails_of_others_took_a_guaranteed_share(tmp_path: Path) -> None:
    """Bug: who had decoded nothing yet could not begin while others filled the half for that."""
    limits = NamespaceLimits(name="team", dram=quota(sure=10))
    with open_store(tmp_path, namespaces=(limits,)) as opened:
        frames = opened.store._dram.open_frames
        taken: list[OpenFrame] = []
        helped: list[tuple[bool, bool]] = []

        def asked(helps: Helps) -> bool:
            helped.append((helps(ANY), helps(TEAM)))
            return False

        frames.let_go = asked
        for namespace in (ANY, TEAM):
            before = len(taken)
            while (frame := frames.open(LAYOUT, namespace)) is not None:
                taken.append(frame)
        # As many as half the share has, with what each strands of its slab.
        assert len(taken) - before in {4, 5}
        # What has no more than is kept for it makes no room for others.
        assert helped == [(True, False), (True, True)]
        for frame in taken:
            frames.close(frame)
        assert frames.byte_count == 0
        assert frames.open(LAYOUT, ANY) is not None


def test_what_is_gone_counts_no_more(tmp_path: Path) -> None:
    with open_store(tmp_path, namespaces=(team(sure=5),)) as opened:
        put(opened, TEAM, range(5))
        put(opened, ANY, range(7))
        dram = opened.store._dram.shares.use
        assert (device_use(opened), device_use(opened, OTHERS)) == (5 * SIZE, 7 * SIZE)
        assert (dram.used_bytes(TEAM), dram.used_bytes(OTHERS)) == (5 * SIZE, 7 * SIZE)
        put(opened, TEAM, range(5))
        for namespace, count in ((TEAM, 5), (ANY, 7)):
            keys = [key(number) for number in range(count)]
            assert opened.store.delete(namespace, keys).result() == count
        assert (device_use(opened), device_use(opened, OTHERS)) == (0, 0)
        assert (dram.used_bytes(TEAM), dram.used_bytes(OTHERS)) == (0, 0)


def test_a_put_that_finds_no_room_counts_no_more(tmp_path: Path) -> None:
    with open_store(tmp_path, namespaces=(team(sure=5),)) as opened:
        put(opened, ANY, range(PER_STORE))
        keys = [key(number) for number in range(PER_STORE)]
        pinned = opened.store.pin(ANY, keys)
        (ticket,) = opened.put([0], namespace_id=TEAM)
        assert ticket.reason is Reason.STORE_FULL
        assert (device_use(opened), opened.store._dram.shares.use.used_bytes(TEAM)) == (0, 0)
        opened.store.unpin(pinned)


def test_operators_see_fill_beside_quotas(tmp_path: Path) -> None:
    limits = NamespaceLimits(
        name="team",
        dram=Quota(limit_bytes=MIB),
        devices=Quota(guaranteed_bytes=SIZE, limit_bytes=9 * SIZE),
        ttl_s=60,
    )
    with open_store(tmp_path, namespaces=(limits,), ttl_s=90) as opened:
        put(opened, TEAM, range(2))
        put(opened, NAMESPACE, range(3))
        own, others = opened.stats().namespaces
        assert (own.name, own.dram_used_bytes, own.device_used_bytes) == (
            "team",
            2 * SIZE,
            2 * SIZE,
        )
        assert (own.dram_guaranteed_bytes, own.dram_limit_bytes) == (0, MIB)
        assert (own.device_guaranteed_bytes, own.device_limit_bytes) == (SIZE, 9 * SIZE)
        assert (others.name, others.device_used_bytes, others.device_limit_bytes) == (
            "",
            3 * SIZE,
            0,
        )
        assert (own.ttl_s, others.ttl_s) == (60, 90)


def test_a_limit_that_was_lowered_is_reached_again(tmp_path: Path) -> None:
    with open_store(tmp_path, namespaces=(team(most=PER_STORE),)) as opened:
        put(opened, TEAM, range(150))
        quotas = opened.store._room.shares.use.quotas
        opened.store._room.shares.use.quotas = type(quotas)({TEAM: quota(most=10)})
        put(opened, TEAM, [1000])
        assert stored(opened, TEAM, [*range(150), 1000]) == [*range(141, 150), 1000]
        assert device_use(opened) == 10 * SIZE


def test_for_a_chunk_above_the_limit_everything_went_in_vain(tmp_path: Path) -> None:
    """Bug: all that the namespace had was evicted, and the chunk was refused."""
    with open_store(tmp_path, namespaces=(team(most=10),)) as opened:
        put(opened, TEAM, range(10))
        (ticket,) = opened.put([1000], namespace_id=TEAM, layout=BROAD)
        assert ticket.reason is Reason.STORE_FULL
        assert stored(opened, TEAM, range(10)) == list(range(10))


def test_where_guaranteed_chunks_lie_in_every_slab_another_size_class_finds_no_room(
    tmp_path: Path,
) -> None:
    with open_store(tmp_path, namespaces=(team(sure=40),)) as opened:
        opened.fill(8)
        for number in range(PER_STORE // 7):
            put(opened, TEAM, [number])
            put(opened, ANY, range(6 * number, 6 * number + 6))
        (ticket,) = opened.put([1000], namespace_id=ANY, layout=WIDE)
        assert ticket.reason is Reason.STORE_FULL
        everything = range(PER_STORE // 7)
        assert stored(opened, TEAM, everything) == list(everything)


def test_what_goes_together_stops_at_the_share(tmp_path: Path) -> None:
    with open_store(tmp_path, namespaces=(team(sure=200),)) as opened:
        put(opened, TEAM, range(203))
        others = range(PER_STORE - 203)
        put(opened, ANY, others)
        pinned = opened.store.pin(ANY, [key(number) for number in others])
        put(opened, ANY, [1000])
        assert stored(opened, TEAM, range(203)) == list(range(3, 203))
        opened.store.unpin(pinned)


def test_tails_of_others_went_for_a_tenant_at_its_own_limit(tmp_path: Path) -> None:
    """Bug: nothing of others makes room there, and everything of theirs was closed."""
    limits = NamespaceLimits(name="team", dram=quota(most=2))
    with open_store(tmp_path, namespaces=(limits,)) as opened:
        frames = opened.store._dram.open_frames
        helped: list[tuple[bool, bool]] = []

        def asked(helps: Helps) -> bool:
            helped.append((helps(ANY), helps(TEAM)))
            return False

        frames.let_go = asked
        taken = [frames.open(LAYOUT, ANY)]
        while (frame := frames.open(LAYOUT, TEAM)) is not None:
            taken.append(frame)
        assert len(taken) == 3
        assert helped == [(False, True)]
        # A flush takes a frame as well.
        helps = frames.helps(TEAM, SIZE)
        assert (helps(ANY), helps(TEAM)) == (False, True)
        helps = frames.helps(ANY, SIZE)
        assert (helps(ANY), helps(TEAM)) == (True, True)
        for each in taken:
            assert each is not None
            frames.close(each)
