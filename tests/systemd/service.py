"""The service in a container, installed as install.md says, and how tests look at it."""

import contextlib
import json
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import PATIENCE_S, wait_until
from tests.systemd.machine import CHECKOUT, CannotBootError, Machine, machine

ROOT = Path(__file__).parents[2]
UNIT = "kvstored.service"
PYTHON = "/opt/kvstored/bin/python"
SOCKET = "/run/kvstored/kvstored.sock"
LOADING = f"{CHECKOUT}/tests/systemd/loading.py"
LEDGER = "/srv/ledger"
CONFIG = "/etc/kvstored/kvstored.toml"
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


def shown(found: Machine, name: str, unit: str = UNIT) -> str:
    return found.run("systemctl", "show", "--value", f"--property={name}", unit).stdout.strip()


def journal(found: Machine, *options: str) -> list[dict[str, Any]]:
    found.run("journalctl", "--sync")
    command = ("journalctl", "--unit", UNIT, "--output", "json", "--all", *options)
    return [json.loads(line) for line in found.run(*command).stdout.splitlines()]


def messages(found: Machine, *options: str) -> list[str]:
    return [str(entry["MESSAGE"]) for entry in journal(found, *options)]


def drop_ins() -> dict[str, str]:
    """Those that install.md gives as files to copy: their lines, by name."""
    text = (ROOT / "docs" / "install.md").read_text()
    block = rf"^```ini\n# /etc/systemd/system/{UNIT}\.d/(\w+)\.conf\n(.*?)^```$"
    return dict(re.findall(block, text, re.MULTILINE | re.DOTALL))


@contextlib.contextmanager
def drop_in(found: Machine, text: str) -> Iterator[None]:
    """The unit has these lines as well, from its next start in the body on."""
    path = f"/etc/systemd/system/{UNIT}.d/test.conf"
    found.write(path, text)
    found.run("systemctl", "daemon-reload")
    try:
        yield
    finally:
        found.shell(f"rm {path}\nsystemctl daemon-reload")


def has_begun(found: Machine) -> None:
    """Waits for the first answer to the client, whose start takes a while."""
    ledger = found.root / LEDGER.lstrip("/")
    wait_until(lambda: ledger.exists() and bool(ledger.read_text()), within_s=PATIENCE_S)


def loses_nothing(found: Machine, what: str) -> None:
    result = json.loads(found.run(PYTHON, LOADING, what, SOCKET, LEDGER).stdout)
    assert result["acknowledged"] > 0
    assert result["lost"] == []
