"""One workload with our planner under a virtual clock. Pure."""

from dataclasses import dataclass

from benchmarks.cake.calibration import (
    Calibration,
    chunk_count,
    compute_cost,
    load_cost,
)
from benchmarks.cake.paper_algorithm import paper_algorithm_s
from benchmarks.cake.workload import CHUNK_TOKENS, Workload
from engine_adapters.restore.cake import plan_cake
from engine_adapters.restore.chunk_costs import ComputeCost, LoadCost
from engine_adapters.restore.ranges import History
from engine_adapters.restore.rates import Rates
from engine_adapters.restore.source import Source
from engine_adapters.restore.testing.oracle import best_meeting, elapsed_s
from engine_adapters.restore.testing.virtual_run import VirtualMachine, restore


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """Seconds until the first token of one workload.

    Of our planner, the paper's algorithm, both baselines and the oracle, all by our costs.
    ``behind_layers_s`` is what could be saved at most if computing the last tokens began after
    each layer of the chunk that is waited for, instead of after all of them.
    ``computed_tokens`` are those that our planner computed, the others were loaded.
    """

    cake_s: float
    paper_algorithm_s: float
    load_s: float
    compute_s: float
    oracle_s: float
    behind_layers_s: float
    computed_tokens: int

    @property
    def behind_layers(self) -> float:
        """That part of our time."""
        return self.behind_layers_s / self.cake_s

    @property
    def over_load(self) -> float:
        """Our speed-up over loading alone."""
        return self.load_s / self.cake_s

    @property
    def over_compute(self) -> float:
        """Our speed-up over computing alone."""
        return self.compute_s / self.cake_s

    @property
    def over_best(self) -> float:
        """Over the faster of both."""
        return min(self.over_load, self.over_compute)

    @property
    def over_oracle(self) -> float:
        """Our time over the least that any meeting point would have taken."""
        return self.cake_s / self.oracle_s


def simulate_workload(
    workload: Workload, calibration: Calibration, *, misled: float = 1.0
) -> Simulated:
    """Plans and runs one workload.

    The planner believes that computing takes ``misled`` times as long as it does; with 1 it
    knows all costs, as measured ones would tell it.
    """
    compute = compute_cost(workload, calibration)
    load = load_cost(workload, calibration.chunk_overhead_s)
    token_budget = max(1, round(workload.share * workload.step_tokens))
    chunks = chunk_count(workload)
    history = History(
        prompt_tokens=workload.tokens, chunk_tokens=CHUNK_TOKENS, is_stored=(True,) * chunks
    )
    believed = compute.scaled(misled)
    plan = plan_cake(history, believed, {Source.KV: load}, token_budget=token_budget)
    outcome = restore(
        history,
        plan,
        believed,
        VirtualMachine(
            step_s=lambda first, count, _: compute.compute_s(first, first + count, token_budget),
            chunk_s=lambda *_: load.chunk_s,
            budget=lambda _: token_budget,
        ),
        rates=Rates(load, token_budget=token_budget),
    )
    first_token_s = compute.compute_s(history.token_count, workload.tokens, token_budget)
    compute_s = compute.compute_s(0, workload.tokens, token_budget)
    layers = workload.model.layer_count
    return Simulated(
        cake_s=outcome.duration_s,
        paper_algorithm_s=paper_algorithm_s(history, compute, load, token_budget=token_budget),
        load_s=chunks * load.chunk_s + first_token_s,
        compute_s=compute_s,
        oracle_s=min(
            _oracle_s(usable, compute, load, token_budget)
            for usable in (history, history.without_short_chunk())
        ),
        behind_layers_s=min(outcome.waited_s, load.chunk_s, outcome.rest_s) * (1 - 1 / layers),
        computed_tokens=sum(tokens.token_count for tokens in outcome.computed),
    )


def _oracle_s(history: History, compute: ComputeCost, load: LoadCost, token_budget: int) -> float:
    """The least that any meeting point takes, until the first token."""
    firsts = [history.chunk_first(chunk) for chunk in range(history.chunk_count + 1)]
    meeting = best_meeting(
        [compute.compute_s(0, first, token_budget) for first in firsts],
        elapsed_s([load.chunk_s] * history.chunk_count),
    )
    rest_s = compute.compute_s(history.token_count, history.prompt_tokens, token_budget)
    alone_s = compute.compute_s(0, history.prompt_tokens, token_budget)
    return min(alone_s, meeting.duration_s + rest_s)
