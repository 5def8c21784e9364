"""The service under a real systemd, in a container that it boots, installed as install.md says.

Control groups of the container are read-only for its systemd. So ``MemoryMax=`` and the list of
devices of a unit are not enforced there; a limit from outside stands in for the first.
"""

import contextlib
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support import labs
from tests.support.sharing import LOOP_DEVICES
from tests.support.waiting import PATIENCE_S, wait_until
from tests.systemd.freezing import freeze_until_it_ends
from tests.systemd.machine import CHECKOUT, CannotBootError, Machine, machine

pytestmark = [labs.BOOTED_SERVICES.marker(), LOOP_DEVICES, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
UNIT = "kvstored.service"
PYTHON = "/opt/kvstored/bin/python"
SOCKET = "/run/kvstored/kvstored.sock"
LOADING = f"{CHECKOUT}/tests/systemd/loading.py"
LEDGER = "/srv/ledger"
CONFIG = "/etc/kvstored/kvstored.toml"
LOAD_S = 2.0
STOPS = 5
EXPOSURE_MAX = 0.5
MEMORY_LIMIT = "memory.limit_in_bytes"
MEMORY_BYTES = 2 * 1024**3
SMALL = """
[store]
devices = ["/var/lib/kvstored/device0", "/var/lib/kvstored/device1"]
device_bytes = "512MiB"
slab_bytes = "8MiB"
index = "/var/lib/kvstored/index"
index_map_bytes = "256MiB"
[dram]
capacity_bytes = "64MiB"
[server]
arenas_bytes_max = "64MiB"
arena_bytes_max = "16MiB"
[[access.tenants]]
namespace = "default"
groups = ["kvstored"]
[[quotas.namespaces]]
namespace = "default"
dram_limit_bytes = "48MiB"
[log]
level = "info"
"""


@contextlib.contextmanager
def booted() -> Iterator[Machine]:
    with contextlib.ExitStack() as stack:
        # A disk of its own, and no file system in memory.
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="kvstored-", dir="/var/tmp"))
        try:
            found = stack.enter_context(machine(Path(name)))
        except CannotBootError as error:
            pytest.skip(str(error))
        yield found


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """A machine, and what the ten commands of install.md wrote and took there."""

    machine: Machine
    output: str
    seconds: float


def ten_commands() -> str:
    section = (
        (ROOT / "docs" / "install.md").read_text().split("\n## The service in ten commands\n")[1]
    )
    found = re.search(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert found is not None
    assert len(found[1].splitlines()) == 10
    return found[1]


@pytest.fixture(scope="module")
def installed() -> Iterator[Installed]:
    with booted() as found:
        began_s = time.monotonic()
        output = found.shell(ten_commands(), has_network=True)
        yield Installed(machine=found, output=output, seconds=time.monotonic() - began_s)


@pytest.fixture
def service(installed: Installed) -> Machine:
    """The machine with a small store, empty and freshly started."""
    found = installed.machine
    found.write(CONFIG, SMALL)
    found.run("systemctl", "reset-failed", check=False)
    found.shell(
        f"systemctl stop kvstored.socket {UNIT}\n"
        f"rm -rf {LEDGER} /var/lib/kvstored/device* /var/lib/kvstored/index\n"
        "runuser -u kvstored -- kvstored format\n"
        f"systemctl start kvstored.socket {UNIT}"
    )
    return found


def shown(found: Machine, name: str, unit: str = UNIT) -> str:
    return found.run("systemctl", "show", "--value", f"--property={name}", unit).stdout.strip()


def journal(found: Machine, *options: str) -> list[dict[str, Any]]:
    found.run("journalctl", "--sync")
    command = ("journalctl", "--unit", UNIT, "--output", "json", "--all", *options)
    return [json.loads(line) for line in found.run(*command).stdout.splitlines()]


def messages(found: Machine, *options: str) -> list[str]:
    return [str(entry["MESSAGE"]) for entry in journal(found, *options)]


def test_ten_commands_serve_observe_limit_restart_and_recover(
    installed: Installed, capsys: pytest.CaptureFixture[str]
) -> None:
    """From an empty container, as a new operator types them."""
    with capsys.disabled():
        sys.stdout.write(f"\nten commands took {installed.seconds:.0f} s\n")
    for part in ("serving\n", "hit rate", "32.0 MiB", "serving epoch 2", "the store is sound"):
        assert part in installed.output, installed.output


def test_it_is_active_when_clients_can_connect(service: Machine) -> None:
    """systemctl returns after sd_notify, with the status that the daemon gave."""
    service.run("systemctl", "stop", UNIT)
    service.run("systemctl", "start", UNIT)
    assert shown(service, "StatusText").startswith("epoch ")
    assert shown(service, "SubState") == "running"
    service.run("kvstored", "ping")
    assert shown(service, "UnitFileState") == "enabled"
    assert shown(service, "UnitFileState", "kvstored.socket") == "enabled"


def test_a_frozen_event_loop_is_restarted(service: Machine) -> None:
    """All other threads go on, so that only the watchdog can see it."""
    drop_in = f"/run/systemd/system/{UNIT}.d/soon.conf"
    # /run is a file system of its own in the container.
    service.shell(
        f"mkdir -p $(dirname {drop_in})\nprintf '[Service]\\nWatchdogSec=10s\\n' > {drop_in}\n"
        f"systemctl daemon-reload && systemctl restart {UNIT}"
    )
    before = shown(service, "MainPID")
    freeze_until_it_ends(service.outer_pid(int(before)))
    wait_until(lambda: shown(service, "SubState") == "running", within_s=PATIENCE_S)
    assert shown(service, "MainPID") != before
    assert shown(service, "NRestarts") == "1"
    service.run("kvstored", "ping")
    said = service.run("journalctl", "--no-pager", "--unit", UNIT).stdout
    assert "Watchdog timeout" in said
    service.shell(f"rm {drop_in} && systemctl daemon-reload")


def test_a_client_starts_it(service: Machine) -> None:
    service.run("systemctl", "stop", UNIT)
    assert shown(service, "ActiveState") == "inactive"
    service.run("kvstored", "ping")
    assert shown(service, "ActiveState") == "active"


def test_a_reload_takes_quotas_and_the_level_of_the_log(service: Machine) -> None:
    before = shown(service, "MainPID")
    changed = SMALL.replace('"48MiB"', '"32MiB"').replace('"info"', '"warning"')
    service.write(CONFIG, changed)
    service.run("systemctl", "reload", UNIT)

    def limit() -> str:
        return service.run("kvstored", "quota", "default", "--json").stdout

    wait_until(lambda: str(32 * 1024**2) in limit(), within_s=PATIENCE_S)
    assert shown(service, "MainPID") == before
    assert messages(service)[-1:] != []
    assert any("reloaded quotas" in message for message in messages(service))
    count = len(messages(service, f"_PID={before}"))
    service.run("kvstored", "ping")
    # A session is logged as information, which is now below the level.
    assert len(messages(service, f"_PID={before}")) == count


def has_begun(found: Machine) -> None:
    """Waits for the first answer to the client, whose start takes a while."""
    ledger = found.root / LEDGER.lstrip("/")
    wait_until(lambda: ledger.exists() and bool(ledger.read_text()), within_s=PATIENCE_S)


def loses_nothing(found: Machine, what: str) -> None:
    result = json.loads(found.run(PYTHON, LOADING, what, SOCKET, LEDGER).stdout)
    assert result["acknowledged"] > 0
    assert result["lost"] == []


@pytest.mark.parametrize("attempt", range(STOPS))
def test_a_stop_under_load_loses_nothing_acknowledged(service: Machine, attempt: int) -> None:
    """Neither what was durable nor what was only staged: a clean stop writes that."""
    with service.beside(PYTHON, LOADING, "put", SOCKET, LEDGER) as client:
        has_begun(service)
        time.sleep(LOAD_S + attempt / 7)
        assert client.poll() is None
        service.run("systemctl", "stop", "kvstored.socket", UNIT)
        _, errors = client.communicate(timeout=PATIENCE_S)
        assert client.returncode == 0, errors
    assert shown(service, "Result") == "success"
    service.run("runuser", "-u", "kvstored", "--", "kvstored", "check")
    service.run("systemctl", "start", "kvstored.socket", UNIT)
    loses_nothing(service, "verify")


def test_a_killed_daemon_is_back_by_itself_with_all_that_was_durable(service: Machine) -> None:
    before = shown(service, "MainPID")
    with service.beside(PYTHON, LOADING, "put", SOCKET, LEDGER) as client:
        has_begun(service)
        time.sleep(LOAD_S)
        service.run("systemctl", "kill", "--signal=KILL", UNIT)
        _, errors = client.communicate(timeout=PATIENCE_S)
        assert client.returncode == 0, errors
    wait_until(
        lambda: shown(service, "SubState") == "running" and shown(service, "MainPID") != before,
        within_s=PATIENCE_S,
    )
    assert shown(service, "NRestarts") == "1"
    loses_nothing(service, "verify-durable")
    assert any("the last stop was not clean" in message for message in messages(service))


@contextlib.contextmanager
def limited(found: Machine, byte_count: int) -> Iterator[None]:
    """All memory of the container is limited while the body runs."""
    (group,) = (group for group in found.groups if (group / MEMORY_LIMIT).exists())
    before = (group / MEMORY_LIMIT).read_text()
    (group / MEMORY_LIMIT).write_text(str(byte_count))
    try:
        yield
    finally:
        (group / MEMORY_LIMIT).write_text("-1" if int(before) > 2**60 else before)


@pytest.mark.skipif(
    not Path("/sys/fs/cgroup/memory").is_dir(), reason="no control groups of version 1 for memory"
)
def test_a_dram_tier_beyond_the_limit_of_memory_is_refused_with_a_sentence(
    service: Machine,
) -> None:
    with limited(service, MEMORY_BYTES):
        service.write(CONFIG, SMALL.replace('"64MiB"\n[server]', '"4GiB"\n[server]'))
        service.run("systemctl", "restart", UNIT, check=False)
        wait_until(lambda: any("raise MemoryMax" in one for one in messages(service)))
        service.write(CONFIG, SMALL)
        service.run("systemctl", "restart", "kvstored.socket", UNIT)
        service.run("kvstored", "ping")


def test_it_is_confined(service: Machine) -> None:
    """What the kernel says about the process, not what the unit says."""
    pid = service.outer_pid(int(shown(service, "MainPID")))
    status = dict(
        line.split(":\t", maxsplit=1)
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    assert {int(status[name], 16) for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb")} == {0}
    root = Path(f"/proc/{pid}/root")
    kinds = {path.name for path in (root / "dev").iterdir() if path.is_block_device()}
    assert kinds == set()
    own = service.run("id", "--user", "kvstored").stdout.strip()

    def can_write(folder: str, *user: str) -> bool:
        place = f"{folder}/touched"
        entry = ("nsenter", "-t", shown(service, "MainPID"), "-m", *user, "--")
        is_written = not service.run(*entry, "touch", place, check=False).returncode
        if is_written:
            service.run(*entry, "rm", place)
        return is_written

    # Not even root, where the daemon's files lie.
    assert not can_write("/usr")
    assert not can_write("/etc/kvstored", "-S", own)
    assert can_write("/var/lib/kvstored", "-S", own)
    assert shown(service, "LimitMEMLOCK") == "infinity"


def test_its_exposure_is_at_most_a_half(service: Machine) -> None:
    result = service.run("systemd-analyze", "security", "--no-pager", UNIT)
    found = re.search(r"Overall exposure level for kvstored.service: ([\d.]+)", result.stdout)
    assert found is not None
    assert float(found[1]) <= EXPOSURE_MAX


def test_the_journal_has_fields(service: Machine) -> None:
    service.run("kvstored", "ping")
    entries = journal(service, "LOGGER=kvstored.server.server")
    (serving,) = [one for one in entries if "serving epoch" in one["MESSAGE"]][-1:]
    assert serving["PRIORITY"] == "6"
    assert serving["SYSLOG_IDENTIFIER"] == "kvstored"
    assert serving["CODE_FILE"].endswith("kvstored/server/server.py")
    assert serving["_SYSTEMD_UNIT"] == UNIT
    service.write(CONFIG, "[store]\n")
    service.run("systemctl", "reload", UNIT)
    wait_until(lambda: journal(service, "PRIORITY=3", "LOGGER=kvstored.reload") != [])
    service.write(CONFIG, SMALL)


def test_an_engine_is_started_after_it(service: Machine) -> None:
    """As vllm.service with the drop-in that the installation left."""
    service.write(
        "/etc/systemd/system/vllm.service",
        "[Service]\nExecStart=/bin/sh -c 'id --groups --name; exec sleep infinity'\nUser=nobody\n",
    )
    service.shell(f"systemctl daemon-reload; systemctl stop kvstored.socket {UNIT}")
    service.run("systemctl", "start", "vllm.service")
    assert shown(service, "ActiveState") == "active"
    started = [
        int(shown(service, "ExecMainStartTimestampMonotonic", unit))
        for unit in (UNIT, "vllm.service")
    ]
    assert started == sorted(started)
    assert int(shown(service, "ActiveEnterTimestampMonotonic")) <= started[1]
    service.run("journalctl", "--sync")
    assert "kvstored" in service.run("journalctl", "--unit", "vllm.service").stdout
    service.run("systemctl", "stop", UNIT)
    # It goes on without the store.
    assert shown(service, "ActiveState", "vllm.service") == "active"
    service.shell("systemctl stop vllm.service; rm /etc/systemd/system/vllm.service")
    service.run("systemctl", "daemon-reload")
