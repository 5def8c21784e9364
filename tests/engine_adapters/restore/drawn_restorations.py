"""Drawn histories and costs, and what a restoration could take at best."""

from dataclasses import dataclass
from itertools import combinations

from hypothesis import strategies as st

from engine_adapters.restore.cake import CakePlan, plan_cake
from engine_adapters.restore.chunk_costs import ComputeCost, LoadCost
from engine_adapters.restore.ranges import History, true_ranges
from engine_adapters.restore.rates import Rates
from engine_adapters.restore.source import Source
from engine_adapters.restore.testing.oracle import best_meeting, elapsed_s
from engine_adapters.restore.testing.virtual_run import Outcome, VirtualMachine, restore


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A history and true costs; every step has the same budget."""

    history: History
    compute: ComputeCost
    load: LoadCost
    token_budget: int

    @property
    def compute_alone_s(self) -> float:
        return self.compute.compute_s(0, self.history.prompt_tokens, self.token_budget)

    @property
    def load_alone_s(self) -> float:
        """Everything stored is loaded, from the front; gaps are computed meanwhile."""
        return self.static_s(self.history.is_stored)

    @property
    def granularity_s(self) -> float:
        """What no planner can foresee to use: one chunk, and what a step costs besides tokens."""
        return self.load.chunk_s + self.compute.step_s

    @property
    def oracle_s(self) -> float:
        """Of all meeting points, without gaps."""
        count = self.history.chunk_count
        firsts = [self.history.chunk_first(chunk) for chunk in range(count + 1)]
        computed_s = [self.compute.compute_s(0, first, self.token_budget) for first in firsts]
        loaded_s = elapsed_s([self.load.chunk_s] * count, latency_s=self.load.latency_s)
        meeting_s = best_meeting(computed_s, loaded_s).duration_s
        return min(self.compute_alone_s, meeting_s + self._compute_s(firsts[-1]))

    @property
    def best_static_s(self) -> float:
        """Of all sets of chunks to load: for few chunks only."""
        stored = [chunk for chunks in self.history.stored_ranges() for chunk in chunks]
        return min(
            self.static_s([chunk in chosen for chunk in range(self.history.chunk_count)])
            for count in range(len(stored) + 1)
            for chosen in combinations(stored, count)
        )

    def static_s(self, is_loaded: list[bool] | tuple[bool, ...]) -> float:
        """These chunks are loaded in order, the others computed as soon as possible."""
        loaded_s, now_s, position = self.load.latency_s, 0.0, 0
        for chunks in true_ranges(is_loaded):
            tokens = self.history.tokens(chunks)
            now_s += self._compute_s(position, tokens.first)
            loaded_s += len(chunks) * self.load.chunk_s
            now_s, position = max(now_s, loaded_s), tokens.stop
        return now_s + self._compute_s(position)

    def _compute_s(self, first: int, stop: int | None = None) -> float:
        end = self.history.prompt_tokens if stop is None else stop
        return self.compute.compute_s(first, end, self.token_budget)

    def machine(self) -> VirtualMachine:
        """Costs as they are."""
        return VirtualMachine(
            step_s=lambda first, count, _: self._compute_s(first, first + count),
            chunk_s=lambda *_: self.load.chunk_s,
            budget=lambda _: self.token_budget,
            latency_s=self.load.latency_s,
            project_s=self.load.project_s,
        )

    def plan(self, believed: ComputeCost | None = None) -> CakePlan:
        return plan_cake(
            self.history,
            believed or self.compute,
            {Source.KV: self.load},
            token_budget=self.token_budget,
        )

    def restored(
        self, machine: VirtualMachine | None = None, *, believed: ComputeCost | None = None
    ) -> Outcome:
        """What the planner makes of it; ``believed`` are the costs that it begins with."""
        return restore(
            self.history,
            self.plan(believed),
            believed or self.compute,
            machine or self.machine(),
            rates=Rates(self.load, token_budget=self.token_budget),
        )


def _power(least: float, most: float) -> st.SearchStrategy[float]:
    return st.floats(least, most).map(lambda exponent: 10.0**exponent)


@st.composite
def histories(
    draw: st.DrawFn, *, chunks_max: int = 40, with_gaps: bool = True, whole: bool = False
) -> History:
    """Prompts of up to that many chunks; ``whole`` ones use all tokens of the last chunk."""
    chunk_tokens = draw(st.sampled_from([16, 64, 128]))
    if with_gaps:
        is_stored = tuple(draw(st.lists(st.booleans(), max_size=chunks_max)))
    else:
        is_stored = (True,) * draw(st.integers(0, chunks_max))
    unused = 0 if whole or not is_stored else draw(st.integers(0, chunk_tokens - 2))
    new_tokens = 1 if unused else draw(st.integers(1, 300))
    return History(
        prompt_tokens=len(is_stored) * chunk_tokens - unused + new_tokens,
        chunk_tokens=chunk_tokens,
        is_stored=is_stored,
    )


@st.composite
def settings_of(draw: st.DrawFn, drawn: st.SearchStrategy[History]) -> Setting:
    """Costs over several orders of magnitude, so that either side may be useless."""
    history = draw(drawn)
    return Setting(
        history=history,
        compute=ComputeCost(
            step_s=draw(_power(-4, -1.5)),
            token_s=draw(_power(-5, -3)),
            attention_s=draw(_power(-10, -6.5)),
        ),
        load=LoadCost(
            chunk_s=history.chunk_tokens * draw(_power(-6, -2.5)),
            latency_s=draw(st.sampled_from([0.0, 0.0001, 0.01, 0.05])),
        ),
        token_budget=draw(st.sampled_from([16, 100, 256, 512, 2048])),
    )
