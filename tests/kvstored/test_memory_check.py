"""A DRAM tier that the control group of the daemon cannot hold is refused with a sentence."""

from pathlib import Path

import pytest

from kvstored import daemon
from kvstored.config import Config, ConfigError, load_config
from kvstored.server.held.arena import GROUP_SPARE_BYTES

MIB = 1024**2
TIER_BYTES = 64 * MIB
LANDING_BYTES = 2 * 8 * 2 * MIB
"""Two devices, eight transfers of 2 MiB each."""
TEXT = """
[store]
devices = ["device0", "device1"]
device_bytes = "512MiB"
slab_bytes = "8MiB"
index = "index"
index_map_bytes = "256MiB"
[dram]
capacity_bytes = "64MiB"
[io]
depth_per_device = 8
read_bytes_max = "2MiB"
"""


@pytest.fixture
def config(tmp_path: Path) -> Config:
    path = tmp_path / "kvstored.toml"
    path.write_text(TEXT)
    return load_config(path)


def check(config: Config, room_bytes: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "group_room_bytes", lambda: room_bytes)
    daemon.check_memory(config)


@pytest.mark.parametrize("lacking_bytes", [1, GROUP_SPARE_BYTES, LANDING_BYTES])
def test_a_limit_that_held_the_dram_tier_and_no_more_got_the_daemon_killed_at_its_start(
    config: Config, monkeypatch: pytest.MonkeyPatch, lacking_bytes: int
) -> None:
    """*Bug:* it was compared with the tier alone, and the kernel killed every start."""
    room_bytes = TIER_BYTES + LANDING_BYTES + GROUP_SPARE_BYTES - lacking_bytes
    with pytest.raises(ConfigError, match=f"more than the {room_bytes} bytes .*raise MemoryMax"):
        check(config, room_bytes, monkeypatch)


@pytest.mark.parametrize("room_bytes", [TIER_BYTES + LANDING_BYTES + GROUP_SPARE_BYTES, None])
def test_a_limit_that_holds_all_of_it_is_accepted(
    config: Config, monkeypatch: pytest.MonkeyPatch, room_bytes: int | None
) -> None:
    check(config, room_bytes, monkeypatch)
