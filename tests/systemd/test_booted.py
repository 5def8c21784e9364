"""The service under a real systemd, in a container that it boots, installed as install.md says."""

import re
import sys
import time
from pathlib import Path

import pytest

from tests.support import labs
from tests.support.sharing import LOOP_DEVICES
from tests.support.waiting import PATIENCE_S, wait_until
from tests.systemd.freezing import freeze_until_it_ends
from tests.systemd.machine import Machine
from tests.systemd.service import (
    CONFIG,
    LEDGER,
    LOADING,
    PYTHON,
    SMALL,
    SOCKET,
    UNIT,
    Installed,
    has_begun,
    journal,
    loses_nothing,
    messages,
    shown,
)

pytestmark = [labs.BOOTED_SERVICES.marker(), LOOP_DEVICES, pytest.mark.timeout(1800)]

LOAD_S = 2.0
STOPS = 5
EXPOSURE_MAX = 0.5


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
    # It locks no memory, so that it needs no limit for that.
    assert status["VmLck"].split() == ["0", "kB"]


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
