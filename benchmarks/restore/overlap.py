"""What reading and computing at the same time takes, where each alone was profiled."""

from benchmarks.restore.calibration import profile_of
from benchmarks.restore.platforms import A100
from benchmarks.restore.shapes import LLAMA_13B
from engine_adapters.restore import LayerCosts, LayerSchedule, Mode, Source, predict_s, schedule_for

CALIBRATED_SPEEDUP = 1.66
"""Section 6.2.1: HCache over KV offload, Llama2-13B on an A100 with DRAM."""
CALIBRATED_TOKENS = 1024


def _efficiency() -> float:
    """The pipeline of planned costs promises more than the paper measured."""
    costs = profile_of(A100, LLAMA_13B).costs(CALIBRATED_TOKENS)
    hcache_s, kv_s = (
        predict_s(schedule_for(mode, costs, LLAMA_13B.layer_count), costs)
        for mode in (Mode.HCACHE, Mode.KV)
    )
    return CALIBRATED_SPEEDUP / (kv_s / hcache_s)


OVERLAP_EFFICIENCY = _efficiency()
"""Speed of both channels together as a share of the speed that each has alone. The planner
does not know it, as the paper's does not: its costs are profiled one by one."""


def duration_s(schedule: LayerSchedule, costs: LayerCosts) -> float:
    """The planned duration, longer where both channels are in use."""
    in_use = set(schedule.sources)
    is_overlapped = Source.HIDDEN in in_use or len(in_use) > 1
    return predict_s(schedule, costs) / (OVERLAP_EFFICIENCY if is_overlapped else 1)
