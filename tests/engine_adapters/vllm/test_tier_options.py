"""Options of the tier that make no sense."""

import re
from pathlib import Path

import pytest

pytest.importorskip("vllm", minversion="0.31", reason="needs vLLM 0.31: make test-vllm")

from engine_adapters.vllm.settings.options import OptionError
from tests.engine_adapters.vllm.test_tier_contract import TierBench

CONFIG = {
    "type": "KvstoredTier",
    "module_path": "engine_adapters.vllm.tier",
    "socket": "nowhere",
}


@pytest.mark.parametrize("timeout_ms", ["10000", 0, -1, 700_000])
def test_a_deadline_that_the_daemon_would_refuse(tmp_path: Path, timeout_ms: object) -> None:
    """Bug: each transfer failed in its thread, with a warning each."""
    with pytest.raises(OptionError, match="timeout_ms of the KvstoredTier is a number from 1"):
        TierBench(tmp_path, {**CONFIG, "timeout_ms": timeout_ms})


def test_an_arena_without_room_for_all_transfers(model: Path) -> None:
    """Bug: transfers failed for want of room, and vLLM went on asking for what was stored."""
    with pytest.raises(
        OptionError, match="9 spans of up to 147456 bytes are moved at once"
    ) as told:
        TierBench(model, {**CONFIG, "arena_bytes": "512KiB"})
    remedy = re.search(r'arena_bytes to at least "(\w+)"$', str(told.value))
    assert remedy is not None
    TierBench(model, {**CONFIG, "arena_bytes": remedy[1]}).tier.shutdown()
