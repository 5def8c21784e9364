"""One container for all tests of this folder that need one."""

import time
from collections.abc import Iterator

import pytest

from tests.systemd.machine import Machine
from tests.systemd.service import (
    CONFIG,
    LEDGER,
    SMALL,
    UNIT,
    Installed,
    booted,
    ten_commands,
)


@pytest.fixture(scope="package")
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
