"""One history, stored once for each use of it, and restored in each of the ways."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from benchmarks.cake.measured.shared_model import SharedModel, StepRecord
from benchmarks.cake.traces import ComputeTrace, oracle_s
from benchmarks.kit.restored_history import restored
from benchmarks.kit.saved_history import SavedHistory, check_cold
from engine_adapters.restore import ComputeCost, LoadCost
from engine_adapters.restore.testing.oracle import elapsed_s
from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.engine.request import Completion
from engine_adapters.runner.engine.restore_report import RestoreReport
from engine_adapters.runner.restore.pointer_sample import PointerSample
from engine_adapters.runner.restore.restore_options import RestoreOptions, Way
from engine_adapters.runner.restore.restorer import Restorer
from kvstored_client import Client

NEW_TOKENS = 4
"""Generated behind the history and compared."""

LOAD_TIMEOUT_S = 120.0
"""Loading everything from the slowest device on a busy machine is to end, not to be given up."""

Step = Callable[[Engine], list[Completion]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """One request that was carried out, with its steps until the first token."""

    completion: Completion
    started_s: float
    steps: tuple[StepRecord, ...]

    @property
    def ttft_s(self) -> float:
        """Seconds from the request to its first token."""
        return self.completion.ttft_s

    @property
    def opening_s(self) -> float:
        """Seconds until the first step began."""
        return self.steps[0].started_s - self.started_s

    @property
    def forward_s(self) -> float:
        """Seconds in forward passes, others' tokens included."""
        return sum(step.duration_s for step in self.steps)

    @property
    def last_s(self) -> float:
        """Seconds of the step that gave the first token."""
        return self.steps[-1].duration_s

    @property
    def waited_s(self) -> float:
        """Seconds in which there was nothing to compute, the opening's included."""
        return self.completion.restore.waited_s

    @property
    def taking_s(self) -> float:
        """The rest: planning, and taking what was loaded into the cache."""
        return self.ttft_s - self.forward_s - self.waited_s

    @property
    def decode_s(self) -> float:
        """Processor's seconds of the thread that decodes, beside all else."""
        return self.completion.restore.decode_s

    @property
    def trace(self) -> ComputeTrace:
        """What was computed when, for a request that nothing was loaded for."""
        return ComputeTrace(
            tuple(step.ended_s - self.started_s for step in self.steps),
            tuple(step.stop_position for step in self.steps),
        )


class CakeHistory:
    """Random tokens whose states the store holds as keys and values. One thread only.

    A ``use`` is a name, as in ``SavedHistory``.
    """

    def __init__(
        self, model: SharedModel, history: Sequence[int], *, chunk_tokens: int, codec: str
    ) -> None:
        self.model = model
        self.token_count = len(history)
        self.chunk_tokens = chunk_tokens
        """Of one fetch."""
        self._saved = SavedHistory(model, history, chunk_tokens=chunk_tokens, codec=codec)
        self.prompt = self._saved.prompt

    @property
    def chunk_count(self) -> int:
        """Chunks of the history."""
        return self.token_count // self.chunk_tokens

    @property
    def chunk_bytes(self) -> int:
        """Of all layers of a chunk, encoded: what moves, or at most moves."""
        return self._saved.format("").layout.chunk_bytes()

    def save(self, client: Client, uses: Sequence[str]) -> None:
        """Prefills the history once and stores it for each use; raises BenchmarkError."""
        self.model.begin()
        self._saved.save(client, uses)

    def ask_for_nothing(self, client: Client, uses: Sequence[str]) -> None:
        """As ``SavedHistory``."""
        self._saved.ask_for_nothing(client, uses)

    def cake_restorer(
        self,
        client: Client,
        use: str,
        *,
        compute: ComputeCost,
        bytes_per_s: float,
        token_budget: int,
        observer: Callable[[PointerSample], None] = lambda _: None,
    ) -> Restorer:
        """What computes and loads at once; it expects the device's nominal rate at first."""
        return Restorer(
            client,
            self._saved.format(use),
            self.model,
            RestoreOptions(
                way=Way.BOTH_ENDS,
                compute=compute,
                load=LoadCost.of_bytes(self.chunk_bytes, bytes_per_s=bytes_per_s),
                step_tokens=token_budget,
                observer=observer,
            ),
        )

    def load_restorer(self, client: Client, use: str) -> Restorer:
        """What loads everything."""
        return Restorer(
            client, self._saved.format(use), self.model, RestoreOptions(timeout_s=LOAD_TIMEOUT_S)
        )

    def take(
        self,
        restorer: Restorer | None,
        *,
        token_budget: int,
        others_tokens: int = 0,
        step: Step = Engine.step,
    ) -> Taken:
        """One request, restored or computed; nothing of it is in flight when this returns.

        Every step has at most ``token_budget`` tokens and ``others_tokens`` of others. Raises
        BenchmarkError when anything came from DRAM, or when loading alone did not
        bring the whole history.
        """
        step_tokens = token_budget + others_tokens
        self.model.begin(
            others_tokens=others_tokens, others_stop_max=len(self.prompt) + step_tokens
        )
        engine = Engine(
            self.model,
            cache_tokens=len(self.prompt) + NEW_TOKENS,
            token_budget=token_budget,
            requests_max=1,
            restorer=restorer,
        )
        started_s = time.perf_counter()
        engine.add_request(self.prompt, new_tokens_max=NEW_TOKENS, stop_token_ids=())
        completions: list[Completion] = []
        while not engine.is_idle:
            completions += step(engine)
        if restorer is not None:
            restorer.close()
        (completion,) = completions
        self._check(restorer, completion.restore)
        steps = self.model.steps
        last = next(n for n, each in enumerate(steps) if each.stop_position == len(self.prompt))
        return Taken(completion=completion, started_s=started_s, steps=tuple(steps[: last + 1]))

    def alone_s(self, token_budget: int, *, repeats: int) -> float:
        """The least TTFT where nothing is loaded."""
        return min(self.take(None, token_budget=token_budget).ttft_s for _ in range(repeats))

    def compute_beside_load(
        self, restorer: Restorer, *, token_budget: int, others_tokens: int
    ) -> tuple[Taken, float]:
        """Computes one request while a thread loads the whole history somewhere else.

        Also returns how long loading took. Raises BenchmarkError as ``take``.
        """
        cache = self.model.make_cache(len(self.prompt))
        with ThreadPoolExecutor(max_workers=1) as executor:
            loading = executor.submit(restored, restorer, self.prompt, cache=cache)
            taken = self.take(None, token_budget=token_budget, others_tokens=others_tokens)
            report = loading.result()
        self._check(restorer, report)
        return taken, report.duration_s

    def oracle_s(self, computed: Taken, *, load_s: float, rest_s: float) -> float:
        """Seconds to the first token with the best meeting point.

        Where loading all chunks takes ``load_s``, each as long as the others, and ``rest_s``
        follows a history that was loaded.
        """
        return oracle_s(
            computed.trace,
            elapsed_s([load_s / self.chunk_count] * self.chunk_count),
            chunk_tokens=self.chunk_tokens,
            alone_s=computed.ttft_s,
            rest_s=rest_s,
        )

    def _check(self, restorer: Restorer | None, report: RestoreReport) -> None:
        if restorer is not None and restorer.options.way is Way.SPANS:
            self._saved.check(report)
        else:
            check_cold(report)
