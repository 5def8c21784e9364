"""The planner of restorations: which layers and tokens to compute, load or project.

By layers (HCache, section 4.1) or by tokens from both ends (Cake, section 4). Pure, but that
``profile_file`` reads and writes a file.

In the order in which it is best read: the sources of a layer (``source``) and the ways to choose
them (``mode``); what is measured (``cost_profile``, ``chunk_costs``, ``layer_costs``, with lines
through times in ``least_squares``); by layers, what each one comes from and how long that takes
(``layer_schedule``, ``prediction``, ``partition``), and what is best (``planner``); by both ends,
what there is (``ranges``), which chunks are loaded in which order (``cake``), what is decided
before every step (``pointers``, which answers with a ``decision``; with ``meeting`` for where to
stop and ``arrivals`` for when the rest will be there), and what restorations learn for the next
ones (``rates``, by what was ``recent``). While a history is loaded by layers, how long the store is
waited for (``stake``, with ``read_pace`` for how fast it is) and how many layers are recomputed
meanwhile (``layer_rates``). Where new tokens follow a history layer by layer, whether that is worth
it and how long a layer is waited for (``layered``). While nothing is computed, how long a load is
waited for (``load_limit``), by what steps of the engine take (``step_costs``) and the time that it
shares with other loads (``load_clock``).

A clock of its own for tests, and the best meeting point in hindsight: ``testing``.
"""

from engine_adapters.restore.cake import CakePlan, plan_cake
from engine_adapters.restore.chunk_costs import ComputeCost, LoadCost
from engine_adapters.restore.cost_profile import (
    PLANNED_TOKENS,
    SPREAD_UNKNOWN,
    CostProfile,
    ProfileError,
)
from engine_adapters.restore.decision import Action, Decision
from engine_adapters.restore.layer_costs import LayerCosts
from engine_adapters.restore.layer_rates import (
    LayerRates,
    storing_schedule,
    with_faster_reads,
)
from engine_adapters.restore.layer_schedule import LayerSchedule
from engine_adapters.restore.layered.answer_times import AnswerTimes
from engine_adapters.restore.layered.layerwise_limit import LayerwiseLimit
from engine_adapters.restore.layered.preload import LayeredLoad, Preload
from engine_adapters.restore.layered.read_meter import ReadMeter
from engine_adapters.restore.least_squares import Sample
from engine_adapters.restore.load_clock import LoadClock, LoadShare, LoadShares
from engine_adapters.restore.load_limit import LoadLimit
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
from engine_adapters.restore.read_pace import ReadPace
from engine_adapters.restore.recent import Doubt, RecentMean
from engine_adapters.restore.source import Source
from engine_adapters.restore.stake import LEAST_WAIT_S, Stake, Verdict, first_span_chunks
from engine_adapters.restore.step_costs import StepCosts

__all__ = [
    "LAYER_MODES",
    "LEAST_WAIT_S",
    "PLANNED_TOKENS",
    "SPREAD_UNKNOWN",
    "Action",
    "AnswerTimes",
    "CakePlan",
    "ComputeCost",
    "CostProfile",
    "Decision",
    "Doubt",
    "History",
    "LayerCosts",
    "LayerRates",
    "LayerSchedule",
    "LayeredLoad",
    "LayerwiseLimit",
    "LoadClock",
    "LoadCost",
    "LoadLimit",
    "LoadShare",
    "LoadShares",
    "Mode",
    "Pointers",
    "Preload",
    "ProfileError",
    "Rates",
    "ReadMeter",
    "ReadPace",
    "RecentMean",
    "Sample",
    "Source",
    "Stake",
    "StepCosts",
    "TokenRange",
    "Verdict",
    "best_bound_s",
    "best_bounded",
    "best_schedule",
    "bound_s",
    "compute_stop",
    "computing_s",
    "first_span_chunks",
    "hcache_schedule",
    "load_profile",
    "plan_cake",
    "predict_s",
    "save_profile",
    "schedule_for",
    "storing_schedule",
    "with_faster_reads",
]
