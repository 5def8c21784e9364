"""Restorations that do what a test says, for tests of the engine's order of work."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine_adapters.runner.engine.restoration import PIECE_TOKENS, Restoration, RestorationState
from engine_adapters.runner.engine.restore_report import RestoreReport
from engine_adapters.runner.model.kv_cache import KvCache


@dataclass
class ScriptedRestoration:
    """Wants ``step_tokens`` in each step, and has nothing to do if these are 0."""

    step_tokens: int
    is_loading: bool
    is_over: bool = False
    position: int = 0
    pieces: list[int] = field(default_factory=list)
    steps: list[tuple[int, int]] = field(default_factory=list)
    """Tokens of it and of all in each step."""
    waits_s: list[float] = field(default_factory=list)

    @property
    def state(self) -> RestorationState:
        return RestorationState(
            position=self.position,
            is_over=self.is_over,
            is_loading=self.is_loading,
            is_waiting=self.step_tokens == 0,
        )

    def advance(self, token_budget: int, *, piece_tokens: int = PIECE_TOKENS) -> int:
        self.pieces.append(piece_tokens)
        return min(token_budget, self.step_tokens)

    def begin_step(self, token_count: int) -> int:
        return self.position

    def end_step(self, token_count: int, duration_s: float, *, step_tokens: int) -> None:
        self.position += token_count
        self.steps.append((token_count, step_tokens))

    def wait(self, timeout_s: float) -> None:
        self.waits_s.append(timeout_s)

    def close(self) -> RestoreReport:
        self.is_over = True
        return RestoreReport(first_unstored=self.position)


class ScriptedRestorer:
    """Begins these, one after the other, then none."""

    def __init__(self, *restorations: ScriptedRestoration) -> None:
        self._left = list(restorations)

    def begin(
        self, token_ids: Sequence[int], *, cache: KvCache, first_slot: int
    ) -> Restoration | None:
        assert (len(token_ids), first_slot) < (len(cache.keys[0]),) * 2
        return self._left.pop(0) if self._left else None
