"""One cell of the paper's tables with our planner under a virtual clock. Pure."""

from dataclasses import dataclass

from benchmarks.cake.calibration import (
    Calibration,
    chunk_count,
    compute_cost,
    load_cost,
)
from benchmarks.cake.paper_algorithm import paper_algorithm_s
from benchmarks.cake.paper_tables import CHUNK_TOKENS, Cell
from benchmarks.cake.virtual_run import VirtualMachine, restore
from engine_adapters.restore.cake import plan_cake
from engine_adapters.restore.chunk_costs import ComputeCost, LoadCost
from engine_adapters.restore.oracle import best_meeting, elapsed_s
from engine_adapters.restore.ranges import History
from engine_adapters.restore.rates import Rates
from engine_adapters.restore.source import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """Seconds until the first token in one cell.

    Of our planner, the paper's algorithm, both baselines and the oracle, all by our costs.
    ``behind_layers_s`` is what could be saved at most if computing the last tokens began behind
    each layer of the chunk that is waited for, instead of behind all of them.
    """

    cell: Cell
    cake_s: float
    paper_algorithm_s: float
    load_s: float
    compute_s: float
    oracle_s: float
    behind_layers_s: float

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

    @property
    def relative_differences(self) -> tuple[float, float]:
        """Of our speed-ups from the paper's, absolute."""
        return self._differences(self.cake_s)

    @property
    def paper_algorithm_differences(self) -> tuple[float, float]:
        """The same for the paper's algorithm: how well our costs describe its servers."""
        return self._differences(self.paper_algorithm_s)

    def _differences(self, duration_s: float) -> tuple[float, float]:
        return (
            abs(self.load_s / duration_s / self.cell.over_load - 1),
            abs(self.compute_s / duration_s / self.cell.over_compute - 1),
        )


def simulate_cell(cell: Cell, calibration: Calibration, *, misled: float = 1.0) -> Simulated:
    """Plans and runs one cell.

    The planner believes that computing takes ``misled`` times as long as it does; with 1 it
    knows all costs, as measured ones would tell it.
    """
    compute = compute_cost(cell, calibration)
    load = load_cost(cell, calibration.chunk_overhead_s)
    token_budget = max(1, round(cell.share * cell.step_tokens))
    chunks = chunk_count(cell)
    history = History(
        prompt_tokens=cell.tokens, chunk_tokens=CHUNK_TOKENS, is_stored=(True,) * chunks
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
    first_token_s = compute.compute_s(history.token_count, cell.tokens, token_budget)
    compute_s = compute.compute_s(0, cell.tokens, token_budget)
    layers = cell.model.layer_count
    return Simulated(
        cell=cell,
        cake_s=outcome.duration_s,
        paper_algorithm_s=paper_algorithm_s(history, compute, load, token_budget=token_budget),
        load_s=chunks * load.chunk_s + first_token_s,
        compute_s=compute_s,
        oracle_s=min(
            _oracle_s(usable, compute, load, token_budget)
            for usable in (history, history.without_short_chunk())
        ),
        behind_layers_s=min(outcome.waited_s, load.chunk_s, outcome.rest_s) * (1 - 1 / layers),
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
