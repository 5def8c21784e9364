"""The mode of one request where the user left the choice to the planner. Pure."""

from dataclasses import dataclass

from engine_adapters.restore import (
    ComputeCost,
    CostProfile,
    History,
    LoadCost,
    Source,
    plan_cake,
)
from engine_adapters.vllm.options import RestoreMode


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeChoice:
    """Chooses by the planner that the runner uses, too (Cake, section 4).

    Without measured costs every stored prefix is overtaken: where the pointers meet shows while
    both run, so that a wrong expectation costs nothing.
    """

    profile: CostProfile | None
    layer_count: int
    chunk_tokens: int
    step_tokens: int

    def mode(self, *, prompt_tokens: int, stored_chunks: int) -> RestoreMode:
        """OFF to compute everything, PREFIX to load first, CAKE to do both at once."""
        if self.profile is None:
            return RestoreMode.CAKE
        usable_chunks = min(stored_chunks, -(-(prompt_tokens - 1) // self.chunk_tokens))
        history = History(
            prompt_tokens=prompt_tokens,
            chunk_tokens=self.chunk_tokens,
            is_stored=(True,) * usable_chunks,
        )
        load = LoadCost.of_profile(
            self.profile, Source.KV, layer_count=self.layer_count, chunk_tokens=self.chunk_tokens
        )
        plan = plan_cake(
            history,
            ComputeCost.of_profile(self.profile, self.layer_count),
            {Source.KV: load},
            token_budget=self.step_tokens,
        )
        if plan.load is None:
            return RestoreMode.OFF
        # What would be computed meanwhile is less than a step: it is not worth a place in one.
        return RestoreMode.PREFIX if plan.meeting_token < self.step_tokens else RestoreMode.CAKE
