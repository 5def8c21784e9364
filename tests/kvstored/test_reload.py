"""A configuration that changes while the daemon runs."""

import logging
import os
import signal
from pathlib import Path

import pytest

from kvstored.config import Config, ConfigError, load_config
from kvstored.daemon import namespace_limits
from kvstored.reload import Reload, changed_keys
from kvstored.tiers.policy.shares import NO_QUOTA, Quotas, TierUse
from kvstored.tiers.upkeep.tier_quotas import SharedTier, TierQuotas
from tests.support.daemon import MIB, DaemonProcess, Overrides
from tests.support.waiting import wait_until


@pytest.fixture
def process(tmp_path: Path) -> DaemonProcess:
    return DaemonProcess(tmp_path, overrides=quota_of(8))


def quota_of(limit_mib: int) -> Overrides:
    namespaces = [{"namespace": "default", "dram_limit_bytes": limit_mib * MIB}]
    return {"quotas": {"namespaces": namespaces}}


def quotas_of(config: Config) -> TierQuotas:
    limits = namespace_limits(config.quotas)
    use = TierUse(Quotas({one.namespace_id: NO_QUOTA for one in limits}))
    return TierQuotas(
        limits, None, dram=SharedTier(use, 64 * MIB), devices=SharedTier(use, 256 * MIB)
    )


def reload(
    process: DaemonProcess, quotas: TierQuotas, before: Config, level: str | None = None
) -> None:
    Reload(read=lambda: load_config(process.config_path), started_with=before, log_level=level).run(
        quotas, lambda config: namespace_limits(config.quotas)
    )


def test_quotas_and_level_are_taken(
    process: DaemonProcess, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    levels: list[object] = []
    monkeypatch.setattr(logging.getLogger(), "setLevel", levels.append)
    before = load_config(process.config_path)
    quotas = quotas_of(before)
    process.configure({**quota_of(4), "log": {"level": "warning"}, "io": {"write_share": 0.2}})
    with caplog.at_level(logging.INFO, logger="kvstored.reload"):
        reload(process, quotas, before)
        assert quotas.of("default").dram.limit_bytes == 4 * MIB
        assert levels == ["WARNING"]
        assert "reloaded quotas" in caplog.text
        assert "a restart is needed for: io.write_share" in caplog.text
        reload(process, quotas, before, level="info")
    assert levels == ["WARNING"]
    assert "--log-level stands before it" in caplog.text


def test_a_wrong_configuration_changes_nothing(
    process: DaemonProcess, caplog: pytest.LogCaptureFixture
) -> None:
    before = load_config(process.config_path)
    quotas = quotas_of(before)
    process.config_path.write_text("[quotas]\nunknown = 1\n")
    with pytest.raises(ConfigError):
        load_config(process.config_path)
    reload(process, quotas, before)
    assert "nothing is reloaded: " in caplog.text
    assert quotas.of("default").dram.limit_bytes == 8 * MIB


def test_keys_that_differ(process: DaemonProcess) -> None:
    before = load_config(process.config_path)
    assert changed_keys(before, before) == []
    process.configure({**quota_of(4), "dram": {"capacity_bytes": 32 * MIB}})
    assert changed_keys(before, load_config(process.config_path)) == ["dram.capacity_bytes"]


def test_a_daemon_reloads_on_sighup(tmp_path: Path) -> None:
    process = DaemonProcess(tmp_path, overrides=quota_of(8), from_command=True)
    with process:
        process.configure({**quota_of(4), "scrub": {"start_delay_s": 1}})
        os.kill(process.pid, signal.SIGHUP)
        wait_until(lambda: "a restart is needed for: scrub.start_delay_s" in process.log)
        row = process.run_verb("quota", "default", "--json")
        assert f'"dram_limit_bytes": {4 * MIB}' in row.stdout
        assert process.terminate() == 0
