"""The planner of restorations: which layers to compute, load or project (HCache, section 4.1).

Everything but ``profile_file`` is pure.
"""

from engine_adapters.restore.cost_profile import CostProfile, ProfileError
from engine_adapters.restore.layer_costs import LayerCosts
from engine_adapters.restore.layer_schedule import LayerSchedule
from engine_adapters.restore.least_squares import Sample
from engine_adapters.restore.mode import Mode
from engine_adapters.restore.planner import best_schedule, hcache_schedule, schedule_for
from engine_adapters.restore.prediction import best_bound_s, bound_s, predict_s
from engine_adapters.restore.profile_file import load_profile, save_profile
from engine_adapters.restore.source import Source
from engine_adapters.restore.token_partition import TokenPartition, predict_tokens_s

__all__ = [
    "CostProfile",
    "LayerCosts",
    "LayerSchedule",
    "Mode",
    "ProfileError",
    "Sample",
    "Source",
    "TokenPartition",
    "best_bound_s",
    "best_schedule",
    "bound_s",
    "hcache_schedule",
    "load_profile",
    "predict_s",
    "predict_tokens_s",
    "save_profile",
    "schedule_for",
]
