"""The kernel holds the service to its limits of memory and of devices.

Each test sets them by a drop-in that install.md gives to copy, with its own sizes and names.
"""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import labs
from tests.support.sharing import LOOP_DEVICES
from tests.support.waiting import PATIENCE_S, wait_until
from tests.systemd import limits
from tests.systemd.drives import drive
from tests.systemd.machine import CHECKOUT, Machine
from tests.systemd.service import (
    CONFIG,
    LEDGER,
    LOADING,
    PYTHON,
    SMALL,
    SOCKET,
    UNIT,
    drop_in,
    drop_ins,
    has_begun,
    loses_nothing,
    messages,
    shown,
)

pytestmark = [labs.BOOTED_LIMITS.marker(), LOOP_DEVICES, pytest.mark.timeout(1800)]

MIB = 1024**2
LIMIT_BYTES = 512 * MIB
ARENA_BYTES = 64 * MIB
ARENA_COUNT = 2 * LIMIT_BYTES // ARENA_BYTES
MANY_ARENAS = SMALL.replace(
    'arenas_bytes_max = "64MiB"\narena_bytes_max = "16MiB"',
    'arenas_bytes_max = "4GiB"\narena_bytes_max = "64MiB"',
)
"""Arenas that reach the limit of the unit before any of their own."""
FILES = [f"/var/lib/kvstored/device{number}" for number in range(2)]
CONNECTING = f"{CHECKOUT}/tests/systemd/connecting.py"
TAKER = "/srv/taker.py"
TAKER_LINES = """
import os
taken = []
while os.path.exists("/proc/" + os.environ["MAINPID"]):
    taken.append(b"x" * 2**20)
"""


def memory_max(byte_count: int) -> str:
    text = drop_ins()["memory"]
    assert "\nMemoryMax=22G\n" in text
    return text.replace("MemoryMax=22G", f"MemoryMax={byte_count}")


def reloading(command: str) -> str:
    """A reload runs this command, with all rights, among the processes of the unit."""
    return f"ExecReload=\nExecReload=+{command}\n"


def skip_without_limits(found: Machine) -> None:
    if reason := limits.no_limits_of_memory(found):
        pytest.skip(reason)


@contextlib.contextmanager
def limited(found: Machine, text: str = "", *, config: str = SMALL) -> Iterator[None]:
    """The unit has its limit of memory, and further lines, while the body runs."""
    skip_without_limits(found)
    with drop_in(found, memory_max(LIMIT_BYTES) + text):
        found.write(CONFIG, config)
        found.run("systemctl", "restart", UNIT)
        assert limits.limit_bytes(found) == LIMIT_BYTES
        yield
    found.write(CONFIG, SMALL)
    found.run("systemctl", "restart", "kvstored.socket", UNIT)


def connected(found: Machine, count: int) -> dict[str, object]:
    """What connecting.py prints."""
    result = found.run(PYTHON, CONNECTING, SOCKET, ARENA_BYTES, count)
    answer: dict[str, object] = json.loads(result.stdout)
    return answer


def test_a_dram_tier_beyond_memory_max_is_refused_with_a_sentence(service: Machine) -> None:
    count = len(messages(service))
    with limited(service):
        service.write(CONFIG, SMALL.replace('"64MiB"\n[server]', '"4GiB"\n[server]'))
        service.run("systemctl", "restart", UNIT, check=False)
        wait_until(lambda: any("raise MemoryMax" in one for one in messages(service)[count:]))


@pytest.mark.parametrize("limit_mib", range(100, 200, 24))
def test_a_limit_between_the_dram_tier_and_all_of_a_start_gets_nothing_killed(
    service: Machine, limit_mib: int
) -> None:
    """It is refused with a sentence, or serves: the kernel would end each start without a word."""
    skip_without_limits(service)
    count, killed = len(messages(service)), len(limits.killed_names(service))
    with drop_in(service, memory_max(limit_mib * MIB) + "Restart=no\n"):
        is_refused = service.run("systemctl", "restart", UNIT, check=False).returncode
    said = messages(service)[count:]
    assert bool(is_refused) == any("raise MemoryMax" in one for one in said)
    assert limits.killed_names(service)[killed:] == []


def test_arenas_of_clients_beyond_memory_max_are_refused_and_the_daemon_lives(
    service: Machine,
) -> None:
    with limited(service, config=MANY_ARENAS):
        before = shown(service, "MainPID")
        first = connected(service, ARENA_COUNT)
        assert 0 < int(str(first["arenas"])) < ARENA_COUNT
        assert "the memory limit of the daemon's control group is near" in str(first["refusal"])
        # They have gone, and their memory with them.
        assert connected(service, 1) == {"arenas": 1, "refusal": ""}
        assert (shown(service, "MainPID"), limits.kill_count(service)) == (before, 0)


def test_page_cache_up_to_memory_max_costs_neither_an_arena_nor_the_daemon(
    service: Machine,
) -> None:
    """The kernel counts for the unit what was read of files, and gives it up for memory."""
    reading = reloading(f"/bin/sh -c 'cat {' '.join(FILES)} > /dev/null'")
    with limited(service, reading, config=MANY_ARENAS):
        before = shown(service, "MainPID")
        service.run("systemctl", "reload", UNIT)
        assert limits.used_bytes(service) > LIMIT_BYTES - ARENA_BYTES
        assert connected(service, 2) == {"arenas": 2, "refusal": ""}
        assert (shown(service, "MainPID"), limits.kill_count(service)) == (before, 0)


def test_a_daemon_killed_at_memory_max_is_back_with_all_that_was_durable(service: Machine) -> None:
    """Something else of the unit takes all memory, and the kernel is asked to spare that."""
    service.write(TAKER, TAKER_LINES)
    with limited(service, reloading(f"/usr/bin/python3 {TAKER}")):
        before, count = shown(service, "MainPID"), len(limits.killed_names(service))
        with service.beside(PYTHON, LOADING, "put", SOCKET, LEDGER) as client:
            has_begun(service)
            pid = service.outer_pid(int(before))
            Path(f"/proc/{pid}/oom_score_adj").write_text("1000")
            service.run("systemctl", "reload", UNIT, check=False)
            _, errors = client.communicate(timeout=PATIENCE_S)
            assert client.returncode == 0, errors
        assert limits.killed_names(service)[count] == "kvstored"
        wait_until(
            lambda: shown(service, "SubState") == "running" and shown(service, "MainPID") != before,
            within_s=PATIENCE_S,
        )
        loses_nothing(service, "verify-durable")


@pytest.fixture
def drives(service: Machine, tmp_path: Path) -> Iterator[list[str]]:
    """Names of two block devices which the daemon's user may use, but for its unit."""
    with contextlib.ExitStack() as undone:
        service.run("usermod", "--append", "--groups", "disk", "kvstored")
        undone.callback(service.run, "gpasswd", "--delete", "kvstored", "disk")
        names = [
            undone.enter_context(drive(service, tmp_path / f"nvme-drive-{number}"))
            for number in range(2)
        ]
        if reason := limits.no_guard_of_devices(service, names[0]):
            pytest.skip(reason)
        # Before anything is taken away that it has open.
        undone.callback(service.run, "systemctl", "stop", UNIT)
        yield names


def allowing(names: list[str]) -> str:
    """The drop-in for block devices, of which these are allowed."""
    lines = drop_ins()["drives"].splitlines()
    kept = [line for line in lines if not line.startswith("DeviceAllow=")]
    assert len(lines) == len(kept) + 2
    return "\n".join([*kept, *(f"DeviceAllow={name} rw" for name in names), ""])


def on_drives(names: list[str]) -> str:
    """The configuration with these devices."""
    return SMALL.replace(json.dumps(FILES), json.dumps(names))


def test_a_block_device_works_once_the_unit_allows_it_and_not_before(
    service: Machine, drives: list[str]
) -> None:
    """Its user may use both; the unit allows one of them, then both."""
    service.write(CONFIG, on_drives(drives))
    service.run("systemctl", "stop", "kvstored.socket", UNIT)
    service.run("runuser", "-u", "kvstored", "--", "kvstored", "format", "--force")
    count = len(messages(service))
    with drop_in(service, allowing(drives[:1])):
        assert service.run("systemctl", "start", UNIT, check=False).returncode
        said = [one for one in messages(service)[count:] if "cannot open" in one]
        assert f"{drives[1]}: open failed: Operation not permitted" in said[0]
        assert "DeviceAllow" in said[0]
    service.run("systemctl", "reset-failed")
    with drop_in(service, allowing(drives)):
        service.run("systemctl", "start", "kvstored.socket", UNIT)
        with service.beside(PYTHON, LOADING, "put", SOCKET, LEDGER) as client:
            has_begun(service)
            service.run("systemctl", "restart", UNIT)
            client.communicate(timeout=PATIENCE_S)
        loses_nothing(service, "verify")
        service.run("systemctl", "stop", UNIT)
