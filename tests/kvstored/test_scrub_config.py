"""The section [scrub]: its defaults, how it is turned off, and what it refuses.

Fails when ``scrub_limits`` does not look for 0 (seen: ``ScrubLimits(bytes_per_s=0, ...) is None``
is false).
"""

from pathlib import Path

import pytest

from kvstored.config import ConfigError, load_config
from kvstored.daemon import tier_limits
from kvstored.tiers.scrub.scrub_pace import ScrubLimits

MINIMAL = """
[store]
devices = ["device0"]
device_bytes = "1GiB"
index = "index"
"""


def limits(folder: Path, text: str) -> ScrubLimits | None:
    path = folder / "kvstored.toml"
    path.write_text(MINIMAL + text)
    return tier_limits(load_config(path)).scrub


def test_it_is_on_by_default(tmp_path: Path) -> None:
    assert limits(tmp_path, "") == ScrubLimits(
        bytes_per_s=32 << 20, start_delay_s=600, pass_interval_s=7 * 24 * 3600
    )


def test_a_rate_of_0_turns_it_off(tmp_path: Path) -> None:
    assert limits(tmp_path, "[scrub]\nbytes_per_s_max = 0\n") is None


def test_every_key_counts(tmp_path: Path) -> None:
    text = '[scrub]\nbytes_per_s_max = "1MiB"\nstart_delay_s = 0\npass_interval_s = 2.5\n'
    assert limits(tmp_path, text) == ScrubLimits(
        bytes_per_s=1 << 20, start_delay_s=0, pass_interval_s=2.5
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("bytes_per_s_max = -1", "scrub.bytes_per_s_max"),
        ("start_delay_s = -1", "scrub.start_delay_s"),
        ("pass_interval_s = 0", "scrub.pass_interval_s"),
        ("pass_interval_s = inf", "scrub.pass_interval_s"),
        ("speed = 1", "scrub.speed is unknown"),
    ],
)
def test_what_it_refuses(tmp_path: Path, line: str, words: str) -> None:
    with pytest.raises(ConfigError) as info:
        limits(tmp_path, f"[scrub]\n{line}\n")
    assert words in str(info.value)
