"""Restores one history with nothing else to do, as far as the store has it."""

from collections.abc import Sequence

from engine_adapters.runner.engine.restore_report import RestoreReport
from engine_adapters.runner.model.kv_cache import KvCache
from engine_adapters.runner.restore.restorer import Restorer

WAIT_S_MAX = 600.0
"""Longest wait for one arrival: a restoration waits no longer than its restorer lets it."""


def restored(
    restorer: Restorer, token_ids: Sequence[int], *, cache: KvCache, first_slot: int = 0
) -> RestoreReport:
    """Waits until everything is there that comes, but for what a step would have to compute."""
    restoration = restorer.begin(token_ids, cache=cache, first_slot=first_slot)
    if restoration is None:
        return RestoreReport()
    try:
        restoration.advance(0)
        while restoration.state.is_loading:
            if restoration.state.is_waiting:
                restoration.wait(WAIT_S_MAX)
            restoration.advance(0)
    finally:
        report = restoration.close()
    return report
