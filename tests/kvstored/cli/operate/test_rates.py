import pytest
from rich.console import Console

from kvstored.cli.operate.rates import rates_of
from kvstored.cli.operate.screen import screen_of
from kvstored_protos.v1 import admin_pb2


def stats(
    epoch: int, read_bytes: int, counters: dict[str, int], *, failed: bool = False
) -> admin_pb2.StatsReply:
    device = admin_pb2.DeviceStats(
        path="/d0",
        capacity_bytes=100,
        used_bytes=40,
        read_bytes=read_bytes,
        written_bytes=2 * read_bytes,
        failed=failed,
    )
    return admin_pb2.StatsReply(
        epoch=epoch,
        uptime_ms=3_723_000,
        devices=[device],
        counters=counters,
        index_failed=failed,
        namespaces=[
            admin_pb2.NamespaceStats(name="team", dram_used_bytes=95, dram_limit_bytes=100),
            admin_pb2.NamespaceStats(),
        ],
    )


EARLIER = stats(3, 1000, {"read_requests": 4, "dram_hit_chunks": 2, "missed_chunks": 1})
LATER = stats(
    3,
    3000,
    {
        "read_requests": 8,
        "dram_hit_chunks": 5,
        "nvme_hit_chunks": 1,
        "missed_chunks": 2,
        "put_stored_chunks": 6,
    },
)


def test_rates_are_of_the_time_between() -> None:
    rates = rates_of(EARLIER, LATER, elapsed_s=2.0)
    (device,) = rates.devices
    assert (device.read_bytes_per_s, device.written_bytes_per_s) == (1000, 2000)
    assert (rates.reads_per_s, rates.puts_per_s, rates.restored_chunks_per_s) == (2, 3, 2)
    assert rates.hit_share == pytest.approx(4 / 5)
    assert rates.dram_share == pytest.approx(3 / 4)


def test_a_daemon_that_restarted_counts_from_its_start() -> None:
    rates = rates_of(EARLIER, stats(4, 500, {"missed_chunks": 2}), elapsed_s=0.5)
    assert rates.devices[0].read_bytes_per_s == 1000
    assert (rates.hit_share, rates.dram_share) == (0.0, None)


def test_where_nothing_happens_there_is_no_share() -> None:
    rates = rates_of(LATER, LATER, elapsed_s=1.0)
    assert (rates.reads_per_s, rates.hit_share, rates.dram_share) == (0, None, None)


def shown(reply: admin_pb2.StatsReply, width: int = 100) -> str:
    console = Console(width=width, record=True, file=None, force_terminal=False, quiet=False)
    with console.capture() as capture:
        console.print(screen_of(reply, rates_of(EARLIER, reply, elapsed_s=2.0)))
    return capture.get()


def test_the_screen_has_tiers_work_and_namespaces() -> None:
    text = shown(LATER)
    for part in ("epoch 3", "1 h 2 m", "DRAM", "/d0", "1000 B", "80%", "75%", "team", "(others)"):
        assert part in text
    assert "failed" not in text


def test_the_screen_names_failures() -> None:
    text = shown(stats(3, 1000, {}, failed=True))
    assert "/d0 has failed" in text
    assert "the index has failed" in text


def test_the_screen_fits_a_narrow_terminal() -> None:
    assert max(map(len, shown(LATER, width=60).splitlines())) <= 60
