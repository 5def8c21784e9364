"""One long request and the short ones beside it, carried out by one engine."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.cake.burst import ShortRequest
from benchmarks.cake.measured.history import NEW_TOKENS, StoredHistory
from benchmarks.cake.measured.shared_model import StepRecord
from engine_adapters.restore import Action
from engine_adapters.runner.cake_restoration import PointerSample
from engine_adapters.runner.cake_restorer import CakeRestorer
from engine_adapters.runner.engine import Engine
from engine_adapters.runner.request import Completion

TOKEN_BUDGET = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class CrowdRun:
    """How it went: seconds until the last token of the last request, and all tokens.

    ``loaded_tokens`` are those of the long request that came from the store.
    """

    finish_s: float
    started_s: float
    steps: tuple[StepRecord, ...]
    loaded_tokens: int
    generated_ids: tuple[tuple[int, ...], ...]


class Crowd:
    """The same requests again and again. ``prompts`` are those of the burst."""

    def __init__(
        self,
        stored: StoredHistory,
        burst: Sequence[ShortRequest],
        prompts: Sequence[Sequence[int]],
    ) -> None:
        self._stored = stored
        self._burst = burst
        self._prompts = prompts
        self.samples: list[PointerSample] = []
        """What the planner of the long request decided in this run."""

    def run(self, restorer: CakeRestorer | None, *, is_adaptive: bool) -> CrowdRun:
        """Carries everything out; without a restorer all is computed.

        Unless ``is_adaptive``, the short requests are held back until the long one, which
        came first, leaves something of a step: it waits for the store, or has its first
        token (Cake, section 5.8: the default scheduling).
        """
        model, long_prompt = self._stored.model, self._stored.prompt
        model.begin()
        self.samples.clear()
        lengths = [len(long_prompt), *map(len, self._prompts)]
        engine = Engine(
            model,
            cache_tokens=sum(lengths) + len(lengths) * NEW_TOKENS,
            token_budget=TOKEN_BUDGET,
            restorer=restorer,
        )
        started_s = time.perf_counter()
        engine.add_request(long_prompt, new_tokens_max=NEW_TOKENS, stop_token_ids=())
        completions: list[Completion] = []
        added = 0
        while added < len(self._burst) or not engine.is_idle:
            now_s = time.perf_counter() - started_s
            if is_adaptive or self._leaves_something(len(long_prompt)):
                while added < len(self._burst) and self._burst[added].arrives_s <= now_s:
                    engine.add_request(
                        self._prompts[added], new_tokens_max=NEW_TOKENS, stop_token_ids=()
                    )
                    added += 1
            if engine.is_idle:
                time.sleep(max(0.0, self._burst[added].arrives_s - now_s))
            else:
                completions += engine.step()
        finish_s = time.perf_counter() - started_s
        if restorer is not None:
            restorer.close()
        completions.sort(key=lambda completion: completion.request_id)
        return CrowdRun(
            finish_s=finish_s,
            started_s=started_s,
            steps=tuple(model.steps),
            loaded_tokens=completions[0].restore.restored_tokens,
            generated_ids=tuple(completion.generated_ids for completion in completions),
        )

    def _leaves_something(self, prompt_tokens: int) -> bool:
        if self.samples and self.samples[-1].action is Action.WAIT:
            return True
        steps = self._stored.model.steps
        return any(step.stop_position >= prompt_tokens for step in reversed(steps))
