"""The scrub of a real daemon finds every damage on its devices, and nothing else.

Fails when ``ScrubPass._verdict`` finds everything sound (seen: no counter
``scrub_damaged_chunks``), ``Pace.take`` begins every request at once (seen: 10.6 MB where 4 MiB/s
allow 8.2 MB), or ``Pacer.wait`` sleeps (seen: the daemon does not stop), or
``ScrubPass._record_of`` does not count (seen: no counter ``scrub_lost_records``).
"""

import json
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvstored_client import (
    Client,
)
from tests.support.daemon import MIB, DaemonProcess, Overrides
from tests.support.numbered_chunks import CHUNK_BYTES, is_put, is_served, key_of
from tests.support.scale import Scale, at
from tests.support.seeds import seed
from tests.support.waiting import wait_until

HEADER_BYTES = 4096

CHUNKS = 60
DAMAGED_CHUNKS = 12


@contextmanager
def scrubbing_daemon(
    folder: Path, *, device_bytes: int = 128 * MIB, **scrub: object
) -> Iterator[tuple[DaemonProcess, Client]]:
    """A daemon whose passes begin five times a second, and a client of it."""
    overrides: Overrides = {
        "store": {"device_bytes": device_bytes},
        "dram": {"capacity_bytes": 16 * MIB},
        "scrub": {
            "bytes_per_s_max": 1 << 40,
            "start_delay_s": 0,
            "pass_interval_s": 0.2,
            **scrub,
        },
    }
    with (
        DaemonProcess(folder, overrides=overrides) as daemon,
        Client(daemon.socket_path, arena_bytes="8MiB", reconnect_interval_s=0.0) as client,
    ):
        yield daemon, client


def put(client: Client, number: int) -> None:
    assert is_put(client, number)


def counters(client: Client) -> dict[str, int]:
    return dict(client.admin.stats().counters)


def wait_for_passes(client: Client, count: int) -> dict[str, int]:
    """Counters after so many whole passes: one may be under way already."""
    wanted = counters(client).get("scrub_passes", 0) + count + 1
    wait_until(lambda: counters(client).get("scrub_passes", 0) >= wanted)
    return counters(client)


def quarantined(client: Client) -> set[bytes]:
    """Keys of the chunks that the index has in quarantine."""
    return {chunk.key for chunk in client.admin.list_chunks().chunks if chunk.quarantined}


def flip(path: Path, offset: int, bit: int) -> None:
    """Flips a bit on the device file; the daemon reads behind the page cache's back."""
    with path.open("r+b", buffering=0) as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1 << bit]))


def test_every_damage_is_found_within_a_pass_and_nothing_else(tmp_path: Path) -> None:
    choice = random.Random(seed())
    with scrubbing_daemon(tmp_path) as (daemon, client):
        for number in range(CHUNKS):
            put(client, number)
        places = {chunk.key: chunk for chunk in client.admin.list_chunks().chunks}
        assert len(places) == CHUNKS
        assert "scrub_damaged_chunks" not in wait_for_passes(client, 1)
        damaged = choice.sample(range(CHUNKS), DAMAGED_CHUNKS)
        for count, number in enumerate(damaged):
            is_in_header = count % 2 == 0
            inside = (
                choice.randrange(HEADER_BYTES)
                if is_in_header
                else HEADER_BYTES + choice.randrange(CHUNK_BYTES)
            )
            chunk = places[key_of(number)]
            path = daemon.devices[chunk.device_index]
            flip(path, chunk.offset + inside, choice.randrange(8))
        found = wait_for_passes(client, 1)
        assert found["scrub_damaged_chunks"] == found["quarantined_chunks"] == DAMAGED_CHUNKS
        # Nobody has read anything.
        assert "read_requests" not in found
        # The last of them may still be on their way into the index.
        wait_until(lambda: len(quarantined(client)) == DAMAGED_CHUNKS)
        assert quarantined(client) == set(map(key_of, damaged))
        assert daemon.log.count("is damaged at") == DAMAGED_CHUNKS
        # DRAM may still have some of the damaged ones: then with their bytes.
        missing = {number for number in range(CHUNKS) if not is_served(client, number)}
        assert missing <= set(damaged)
        for number in damaged:
            put(client, number)
        again = wait_for_passes(client, 1)
        assert again["scrub_damaged_chunks"] == DAMAGED_CHUNKS
        assert daemon.terminate() == 0
        check = daemon.run_verb("check", "--json")
        assert check.returncode == 0, check.stdout
        daemon.start()
        assert client.available()
        # Nothing is in DRAM any more, and what was damaged was stored anew.
        assert all(is_served(client, number) for number in range(CHUNKS))


@at(Scale.QUICK)
def test_damage_outside_of_chunks_is_reported_and_mended_by_a_start(tmp_path: Path) -> None:
    with scrubbing_daemon(tmp_path) as (daemon, client):
        put(client, 0)
        (chunk,) = client.admin.list_chunks().chunks
        path = daemon.devices[chunk.device_index]
        flip(path, 40, 0)
        flip(path, chunk.offset - HEADER_BYTES + 20, 3)
        found = wait_for_passes(client, 1)
        assert found["scrub_damaged_superblocks"] >= 1
        assert found["scrub_damaged_slab_headers"] >= 1
        assert f"the superblock copy at byte 0 of {path} is damaged" in daemon.log
        assert f"the header of slab 0 of {path} is damaged" in daemon.log
        assert is_served(client, 0)
        assert daemon.terminate() == 0
        daemon.start()
        assert client.available()
        again = wait_for_passes(client, 1)
        assert "scrub_damaged_superblocks" not in again
        assert again["scrub_damaged_slab_headers"] >= 1


def damage_index_entry(daemon: DaemonProcess, number: int) -> None:
    """Flips a bit of a chunk's record, which the daemon sees: the file and its map are one.

    Also where pages that are not in use any more have it.
    """
    path = daemon.index / "data.mdb"
    data, key = path.read_bytes(), key_of(number)
    starts = [place for place in range(len(data)) if data.startswith(key, place)]
    assert starts
    for start in starts:
        flip(path, start + len(key) + 8, 3)


@at(Scale.QUICK)
def test_a_damaged_index_entry_is_found_and_mended_by_the_next_put(tmp_path: Path) -> None:
    damaged, others = 7_654_321, range(8)
    with scrubbing_daemon(tmp_path) as (daemon, client):
        for number in (*others, damaged):
            put(client, number)
        assert "scrub_lost_records" not in wait_for_passes(client, 1)
        damage_index_entry(daemon, damaged)
        found = wait_for_passes(client, 1)
        assert found["scrub_lost_records"] >= 1
        assert not {"scrub_damaged_chunks", "quarantined_chunks"} & set(found)
        line = f"the index entry of chunk {key_of(damaged).hex()} is damaged; it is a miss"
        assert line in daemon.log
        assert daemon.log.count("the index entry of chunk") == daemon.log.count(line)
        assert all(is_served(client, number) for number in others)
        put(client, damaged)
        mended = wait_for_passes(client, 0)
        assert wait_for_passes(client, 1)["scrub_lost_records"] == mended["scrub_lost_records"]
        assert daemon.terminate() == 0
        check = daemon.run_verb("check", "--json")
        assert check.returncode == 0, check.stdout
        daemon.start()
        assert client.available()
        assert all(is_served(client, number) for number in (*others, damaged))


@at(Scale.QUICK)
def test_a_scrubbed_store_under_puts_reads_and_evictions_serves_right_bytes(
    tmp_path: Path,
) -> None:
    chosen = seed()
    with scrubbing_daemon(tmp_path, device_bytes=26 * MIB) as (daemon, client):
        before = wait_for_passes(client, 0)["scrub_passes"]
        is_enough = threading.Event()
        served = [0, 0]

        def use(worker: int) -> None:
            choice = random.Random(chosen + worker)
            with Client(daemon.socket_path, arena_bytes="8MiB") as own:
                while not is_enough.is_set():
                    put(own, choice.randrange(400))
                    for _ in range(4):
                        served[worker] += is_served(own, choice.randrange(400))

        workers = [threading.Thread(target=use, args=(worker,)) for worker in range(2)]
        for worker in workers:
            worker.start()
        try:
            wait_until(
                lambda: (
                    counters(client).get("scrub_passes", 0) >= before + 3
                    and "evicted_chunks" in counters(client)
                    and min(served) > 0
                )
            )
        finally:
            is_enough.set()
            for worker in workers:
                worker.join()
        found = wait_for_passes(client, 1)
        assert found["scrub_chunks"] > 0
        for name in found:
            assert "damaged" not in name, found
            assert "lost" not in name, found
        assert not {"quarantined_chunks", "suspected_chunks", "unconfirmed_chunks"} & set(found)
        assert daemon.terminate() == 0
        check = daemon.run_verb("check", "--json")
        assert check.returncode == 0, check.stdout


@at(Scale.QUICK)
def test_the_rate_is_kept(tmp_path: Path) -> None:
    rate = 4 * MIB
    with scrubbing_daemon(tmp_path, bytes_per_s_max=rate) as (_, client):
        for number in range(32):
            put(client, number)
        # The passes until here may have found nothing to read.
        wait_for_passes(client, 1)
        stats = client.admin.stats()
        # The scrub began a moment before the daemon counts its time from.
        assert stats.counters["scrub_bytes"] <= rate * (stats.uptime_ms / 1000 + 1) + MIB
        # A whole pass over all of it takes two.
        assert stats.uptime_ms > 1000
        assert 0 <= stats.scrub.progress <= 1
        assert stats.scrub.ended_ms > 0


def test_a_stop_does_not_wait_for_the_scrub(tmp_path: Path) -> None:
    """Its next request would begin in 18 hours."""
    with scrubbing_daemon(tmp_path, bytes_per_s_max=1) as (daemon, client):
        wait_until(lambda: counters(client).get("scrub_bytes") == HEADER_BYTES)
        assert daemon.terminate() == 0


@pytest.mark.parametrize("rate", [0, 1 << 40])
def test_stats_tell_of_passes(tmp_path: Path, rate: int) -> None:
    with scrubbing_daemon(tmp_path, bytes_per_s_max=rate) as (daemon, client):
        if rate:
            wait_for_passes(client, 1)
        result = daemon.run_verb("stats", "--json")
        assert result.returncode == 0, result.stderr
        stats = json.loads(result.stdout)
        if rate:
            assert stats["scrub_passes"] >= 1
            assert stats["scrub_ended"].startswith("20")
            assert "scrub pass ended: 0 chunks" in daemon.log
        else:
            assert "scrub_passes" not in stats
            assert (stats["scrub_progress"], stats["scrub_ended"]) == (0.0, "never")
