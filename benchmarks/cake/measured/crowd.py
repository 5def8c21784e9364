"""One long request and the short ones beside it, carried out by one engine."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.cake.burst import ShortRequest
from benchmarks.cake.measured.history import NEW_TOKENS, CakeHistory
from benchmarks.cake.measured.shared_model import StepRecord
from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.engine.request import Completion
from engine_adapters.runner.restore.restorer import Restorer

TOKEN_BUDGET = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class CrowdResult:
    """How it went: seconds until the last token of the last request, and all tokens.

    ``loaded_tokens`` are those of the long request that came from the store, ``waited_s`` the
    time in which it could do nothing but wait for it.
    """

    finish_s: float
    started_s: float
    steps: tuple[StepRecord, ...]
    loaded_tokens: int
    waited_s: float
    generated_ids: tuple[tuple[int, ...], ...]


class Crowd:
    """The same requests again and again. ``prompts`` are those of the burst."""

    def __init__(
        self,
        stored: CakeHistory,
        burst: Sequence[ShortRequest],
        prompts: Sequence[Sequence[int]],
    ) -> None:
        self._stored = stored
        self._burst = burst
        self._prompts = prompts

    def shorts_s(self) -> float:
        """Seconds of carrying out the short requests alone, all of them at once."""
        self._stored.model.begin()
        engine = self._engine(None, self._prompts, is_adaptive=True)
        started_s = time.perf_counter()
        for prompt in self._prompts:
            engine.add_request(prompt, new_tokens_max=NEW_TOKENS, stop_token_ids=())
        engine.run()
        return time.perf_counter() - started_s

    def run(self, restorer: Restorer | None, *, is_adaptive: bool) -> CrowdResult:
        """Carries everything out; without a restorer all is computed.

        Unless ``is_adaptive``, prefills are computed in order of arrival: the short requests
        have what the long one, which came first, leaves of a step, which is nothing until its
        first token unless it waits for the store (Cake, section 5.8: the default scheduling).
        """
        model, long_prompt = self._stored.model, self._stored.prompt
        model.begin()
        engine = self._engine(restorer, [long_prompt, *self._prompts], is_adaptive=is_adaptive)
        started_s = time.perf_counter()
        engine.add_request(long_prompt, new_tokens_max=NEW_TOKENS, stop_token_ids=())
        completions: list[Completion] = []
        added = 0
        while added < len(self._burst) or not engine.is_idle:
            now_s = time.perf_counter() - started_s
            while added < len(self._burst) and self._burst[added].arrives_s <= now_s:
                prompt = self._prompts[added]
                engine.add_request(prompt, new_tokens_max=NEW_TOKENS, stop_token_ids=())
                added += 1
            if engine.is_idle:
                time.sleep(max(0.0, self._burst[added].arrives_s - now_s))
            else:
                completions += engine.step()
        finish_s = time.perf_counter() - started_s
        if restorer is not None:
            restorer.close()
        completions.sort(key=lambda completion: completion.request_id)
        return CrowdResult(
            finish_s=finish_s,
            started_s=started_s,
            steps=tuple(model.steps),
            loaded_tokens=completions[0].restore.restored_tokens,
            waited_s=completions[0].restore.waited_s,
            generated_ids=tuple(completion.generated_ids for completion in completions),
        )

    def _engine(
        self,
        restorer: Restorer | None,
        prompts: Sequence[Sequence[int]],
        *,
        is_adaptive: bool,
    ) -> Engine:
        """With room for all of these."""
        return Engine(
            self._stored.model,
            cache_tokens=sum(map(len, prompts)) + len(prompts) * NEW_TOKENS,
            token_budget=TOKEN_BUDGET,
            restorer=restorer,
            is_adaptive=is_adaptive,
        )
