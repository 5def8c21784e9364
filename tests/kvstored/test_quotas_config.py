"""The section [quotas]: what it means, and what it refuses."""

from pathlib import Path

import pytest

from kvstored.config import ConfigError, load_config
from kvstored.daemon import tier_limits
from kvstored.tiers.namespaces import NamespaceLimits
from kvstored.tiers.policy.shares import Quota
from kvstored.tiers.tiered_store import TierLimits

MINIMAL = """
[store]
devices = ["device0", "device1"]
device_bytes = "1GiB"
index = "index"
[dram]
capacity_bytes = "1GiB"
[[access.tenants]]
namespace = "team"
users = [1000]
"""
MIB = 1 << 20


def limits(folder: Path, text: str) -> TierLimits:
    path = folder / "kvstored.toml"
    path.write_text(MINIMAL + text)
    return tier_limits(load_config(path))


def test_nobody_has_a_quota_by_default(tmp_path: Path) -> None:
    found = limits(tmp_path, "")
    assert (found.namespaces, found.ttl_s, found.lifetimes.all_s) == ((), None, set())


def test_every_key_counts(tmp_path: Path) -> None:
    found = limits(
        tmp_path,
        """
[quotas]
ttl_s = 60
[[quotas.namespaces]]
namespace = "team"
dram_guaranteed_bytes = "100MiB"
dram_limit_bytes = "200MiB"
device_guaranteed_bytes = "300MiB"
device_limit_bytes = "400MiB"
ttl_s = 0.5
[[quotas.namespaces]]
namespace = "default"
device_limit_bytes = "1MiB"
""",
    )
    team = NamespaceLimits(
        name="team",
        dram=Quota(guaranteed_bytes=100 * MIB, limit_bytes=200 * MIB),
        devices=Quota(guaranteed_bytes=300 * MIB, limit_bytes=400 * MIB),
        ttl_s=0.5,
    )
    default = NamespaceLimits(name="default", devices=Quota(limit_bytes=MIB))
    assert found.namespaces == (team, default)
    assert found.ttl_s == 60
    assert found.lifetimes.of(team.namespace_id) == 0.5
    assert found.lifetimes.of(default.namespace_id) == 60


TEAM = '[[quotas.namespaces]]\nnamespace = "team"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[quotas]\nttl_s = 0\n", "quotas.ttl_s"),
        ("[quotas]\nttl_s = inf\n", "quotas.ttl_s"),
        ("[quotas]\ndays = 1\n", "quotas.days is unknown"),
        (TEAM + "limit = 1\n", "quotas.namespaces.0.limit is unknown"),
        (TEAM + "dram_limit_bytes = 0\n", "quotas.namespaces.0.dram_limit_bytes"),
        (TEAM + "dram_guaranteed_bytes = -1\n", "-1 is no size"),
        ("[[quotas.namespaces]]\nttl_s = 1\n", "quotas.namespaces.0.namespace is missing"),
        (TEAM + TEAM, "names 'team' twice"),
        ('[[quotas.namespaces]]\nnamespace = "tema"\n', "no namespace of access.tenants"),
        (
            TEAM + "dram_limit_bytes = 1\ndram_guaranteed_bytes = 2\n",
            "dram_limit_bytes (1) of the namespace 'team' is below",
        ),
        (
            TEAM + "device_limit_bytes = 1\ndevice_guaranteed_bytes = 2\n",
            "device_limit_bytes (1) of the namespace 'team' is below",
        ),
        (TEAM + 'dram_guaranteed_bytes = "1GiB"\n', "more than 0.9 of the capacity (1073741824)"),
        (
            TEAM + 'device_guaranteed_bytes = "1900MiB"\n',
            "device_guaranteed_bytes of all quotas.namespaces (1992294400) are more than 0.9",
        ),
    ],
)
def test_what_it_refuses(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as info:
        limits(tmp_path, text)
    assert words in str(info.value)
    assert "\n" not in str(info.value)
