"""A restoration for a caller with nothing else to do."""

from collections.abc import Sequence

from engine_adapters.runner.engine.restore_report import RestoreReport
from engine_adapters.runner.model.kv_cache import KvCache
from engine_adapters.runner.restore.restorer import Restorer

WAIT_S_MAX = 600.0


def restored(
    restorer: Restorer,
    token_ids: Sequence[int],
    *,
    cache: KvCache,
    first_slot: int = 0,
    first_position: int = 0,
) -> RestoreReport:
    """Takes all that comes, up to where a step would have to compute; the reader has ended then."""
    restoration = restorer.begin(
        token_ids, cache=cache, first_slot=first_slot, first_position=first_position
    )
    if restoration is None:
        return RestoreReport()
    restoration.advance(0)
    while restoration.state.is_loading:
        if restoration.state.is_waiting:
            restoration.wait(WAIT_S_MAX)
        restoration.advance(0)
    report = restoration.close()
    restorer.close()
    return report
