"""The mode of one request where the user left the choice to the planner. Pure."""

from dataclasses import dataclass
from functools import lru_cache

from engine_adapters.restore import (
    CakePlan,
    ComputeCost,
    CostProfile,
    History,
    LoadCost,
    Mode,
    Source,
    StepCosts,
    plan_cake,
    predict_s,
    schedule_for,
)
from engine_adapters.vllm.settings.options import RestoreMode
from engine_adapters.vllm.settings.state_kinds import PLANNED_TOKENS, hcache_schedule

PLANS_REMEMBERED = 64
"""Requests that wait for blocks ask again in each step, those in front first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeChoice:
    """Chooses by the planner that the runner uses, too (HCache, section 4.1; Cake, section 4).

    Without measured costs the stored prefix of a prompt that takes several steps is overtaken:
    where the pointers meet shows while both run, so that a wrong expectation costs nothing. A
    prompt of one step could not jump, and is loaded first. ``stores_hidden``: some layers are
    stored as their inputs, which can be projected after a load only.
    """

    profile: CostProfile | None
    layer_count: int
    chunk_tokens: int
    step_tokens: int
    stores_hidden: bool = False

    @property
    def prefers_hidden(self) -> bool:
        """Whether layer inputs restore a history of PLANNED_TOKENS sooner than anything else.

        What is stored is decided before the first request; this is by what.
        """
        if self.profile is None:
            return False
        schedule = hcache_schedule(self.profile, self.layer_count)
        if schedule.count(Source.HIDDEN) == 0:
            return False
        hidden_s = predict_s(schedule, self.profile.costs(PLANNED_TOKENS))
        chunks = PLANNED_TOKENS // self.chunk_tokens
        return hidden_s < self._plan(self.profile, PLANNED_TOKENS, chunks).duration_s

    def step_costs(self) -> StepCosts:
        """What computing costs by the profile, if there is one, until steps have been measured."""
        compute = None
        if self.profile is not None:
            compute = ComputeCost.of_profile(self.profile, self.layer_count)
        return StepCosts(compute, step_tokens=self.step_tokens)

    def mode(self, *, prompt_tokens: int, stored_chunks: int) -> RestoreMode:
        """OFF to compute everything, PREFIX or HCACHE to load first, CAKE to do both at once."""
        if self.profile is None:
            return self._without_costs(prompt_tokens)
        usable_chunks = min(stored_chunks, -(-(prompt_tokens - 1) // self.chunk_tokens))
        return _by_costs(self, self.profile, prompt_tokens, usable_chunks)

    def _without_costs(self, prompt_tokens: int) -> RestoreMode:
        if self.stores_hidden:
            return RestoreMode.HCACHE
        return RestoreMode.PREFIX if prompt_tokens <= self.step_tokens else RestoreMode.CAKE

    def planned(self, profile: CostProfile, prompt_tokens: int, chunks: int) -> RestoreMode:
        """As ``mode`` with so many usable chunks; takes longer for longer prompts."""
        if self.stores_hidden:
            return self._projected(profile, chunks)
        plan = self._plan(profile, prompt_tokens, chunks)
        if plan.load is None:
            return RestoreMode.OFF
        # What would be computed meanwhile is less than a step: it is not worth a place in one.
        return RestoreMode.PREFIX if plan.meeting_token < self.step_tokens else RestoreMode.CAKE

    def _projected(self, profile: CostProfile, chunks: int) -> RestoreMode:
        costs = profile.costs(max(1, chunks * self.chunk_tokens))
        restored_s = predict_s(hcache_schedule(profile, self.layer_count), costs)
        computed_s = predict_s(schedule_for(Mode.RECOMPUTE, costs, self.layer_count), costs)
        return RestoreMode.HCACHE if chunks and restored_s < computed_s else RestoreMode.OFF

    def _plan(self, profile: CostProfile, prompt_tokens: int, chunks: int) -> CakePlan:
        """Keys and values from the back, computing from the front."""
        history = History(
            prompt_tokens=prompt_tokens,
            chunk_tokens=self.chunk_tokens,
            is_stored=(True,) * chunks,
        )
        load = LoadCost.of_profile(
            profile, Source.KV, layer_count=self.layer_count, chunk_tokens=self.chunk_tokens
        )
        return plan_cake(
            history,
            ComputeCost.of_profile(profile, self.layer_count),
            {Source.KV: load},
            token_budget=self.step_tokens,
        )


@lru_cache(PLANS_REMEMBERED)
def _by_costs(
    choice: ModeChoice, profile: CostProfile, prompt_tokens: int, chunks: int
) -> RestoreMode:
    """Planned once: the scheduler's thread, and with it every other request, waits for a plan."""
    return choice.planned(profile, prompt_tokens, chunks)
