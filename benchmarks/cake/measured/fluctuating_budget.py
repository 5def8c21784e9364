"""A share of every step that is drawn for each step (Cake, section 5.7)."""

import random

from benchmarks.cake.measured.shared_model import SharedModel
from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.engine.request import Completion


class FluctuatingBudget:
    """Steps an engine whose request has 0 to ``step_tokens`` tokens of each step, uniform.

    Others have the rest, also of steps in which the request has nothing. Equal seeds give
    equal budgets to the steps of equal numbers. After the first token all steps are whole.
    """

    def __init__(self, model: SharedModel, seed: str, *, step_tokens: int) -> None:
        self._model = model
        self._generator = random.Random(seed)
        self._step_tokens = step_tokens
        self._budget = self._draw()

    def step(self, engine: Engine) -> list[Completion]:
        """One step, or a wait for the store."""
        model = self._model
        if model.has_answered:
            return engine.step()
        model.others_tokens = self._step_tokens - self._budget
        steps_before = len(model.steps)
        completions = engine.step(token_budget=self._budget)
        has_computed = len(model.steps) > steps_before
        if self._budget == 0:
            model.compute_others(model.steps[-1].stop_position if model.steps else 0)
        if has_computed or self._budget == 0:
            self._budget = self._draw()
        return completions

    def _draw(self) -> int:
        return self._generator.randint(0, self._step_tokens)
