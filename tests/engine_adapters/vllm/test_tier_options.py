"""Options of the tier that make no sense."""

from pathlib import Path

import pytest

pytest.importorskip("vllm", minversion="0.31", reason="needs vLLM 0.31: make test-vllm")

from engine_adapters.vllm.options import OptionError
from tests.engine_adapters.vllm.test_tier_contract import TierBench


@pytest.mark.parametrize("timeout_ms", ["10000", 0, -1, 700_000])
def test_a_deadline_that_the_daemon_would_refuse(tmp_path: Path, timeout_ms: object) -> None:
    """Bug: each transfer failed in its thread, with a warning each."""
    config = {
        "type": "KvstoredTier",
        "module_path": "engine_adapters.vllm.tier",
        "socket": "nowhere",
        "timeout_ms": timeout_ms,
    }
    with pytest.raises(OptionError, match="timeout_ms of the KvstoredTier is a number from 1"):
        TierBench(tmp_path, config)
