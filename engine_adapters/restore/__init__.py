"""The planner of restorations: which layers and tokens to compute, load or project.

By layers (HCache, section 4.1) or by tokens from both ends (Cake, section 4). Everything but
``profile_file`` is pure.

In the order in which it is best read: what is measured (``cost_profile``, ``chunk_costs``,
``layer_costs``); by layers, what each one comes from and how long that takes (``layer_schedule``,
``prediction``, ``partition``), and what is best (``planner``); by both ends, what there is
(``ranges``), which chunks are loaded in which order (``cake``), what is decided before every step
(``pointers``, with ``meeting`` for where to stop and ``arrivals`` for when the rest will be there),
and what restorations learn for the next ones (``rates``).
"""

from engine_adapters.restore.cake import CakePlan, plan_cake
from engine_adapters.restore.chunk_costs import ComputeCost, LoadCost
from engine_adapters.restore.chunk_piece import ChunkPiece, pieces_of
from engine_adapters.restore.cost_profile import PLANNED_TOKENS, CostProfile, ProfileError
from engine_adapters.restore.decision import Action, Decision
from engine_adapters.restore.layer_costs import LayerCosts
from engine_adapters.restore.layer_schedule import LayerSchedule
from engine_adapters.restore.least_squares import Sample
from engine_adapters.restore.meeting import compute_stop
from engine_adapters.restore.mode import LAYER_MODES, Mode
from engine_adapters.restore.planner import best_schedule, hcache_schedule, schedule_for
from engine_adapters.restore.pointers import Pointers
from engine_adapters.restore.prediction import (
    best_bound_s,
    best_bounded,
    bound_s,
    computing_s,
    predict_s,
)
from engine_adapters.restore.profile_file import load_profile, save_profile
from engine_adapters.restore.ranges import History, TokenRange
from engine_adapters.restore.rates import Rates
from engine_adapters.restore.recent_mean import RecentMean
from engine_adapters.restore.source import Source
from engine_adapters.restore.token_partition import TokenPart, TokenPartition, predict_tokens_s
from engine_adapters.restore.token_reads import slices_in_flight, turn_count

__all__ = [
    "LAYER_MODES",
    "PLANNED_TOKENS",
    "Action",
    "CakePlan",
    "ChunkPiece",
    "ComputeCost",
    "CostProfile",
    "Decision",
    "History",
    "LayerCosts",
    "LayerSchedule",
    "LoadCost",
    "Mode",
    "Pointers",
    "ProfileError",
    "Rates",
    "RecentMean",
    "Sample",
    "Source",
    "TokenPart",
    "TokenPartition",
    "TokenRange",
    "best_bound_s",
    "best_bounded",
    "best_schedule",
    "bound_s",
    "compute_stop",
    "computing_s",
    "hcache_schedule",
    "load_profile",
    "pieces_of",
    "plan_cake",
    "predict_s",
    "predict_tokens_s",
    "save_profile",
    "schedule_for",
    "slices_in_flight",
    "turn_count",
]
