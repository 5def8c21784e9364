"""Windows that overflow, with positions decoupled from states and without (figure 22).

Without, what is left after a cut is another prompt, whose states are computed again (OF).
"""

import random
from contextlib import ExitStack
from pathlib import Path

from benchmarks.benchmark import BenchmarkError, Settings
from benchmarks.conversations import paper
from benchmarks.conversations.costs import CHUNK_TOKENS, Costs
from benchmarks.conversations.scale import Scale
from benchmarks.conversations.talking import MODEL_NAME, Asked, Keeping, take_turns
from benchmarks.interleave import Alternative, Measured, interleave, ratios
from benchmarks.kit.daemon_process import DaemonOptions, served
from benchmarks.report import Series
from benchmarks.scratch import scratch_folder
from engine_adapters.restore import Preload
from engine_adapters.runner.engine.engine import TOKEN_BUDGET, Engine
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.restore.restore_options import RestoreOptions
from engine_adapters.runner.restore.restorer import Restorer
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Client

MIB = 1024 * 1024
FIGURE = "overflow_on_vs_off_x"


class OverflowLab:
    """Conversations that begin with a nearly full window, one after the other."""

    def __init__(
        self, client: Client, scale: Scale, model: Model, options: RestoreOptions, seed: int
    ) -> None:
        self._client = client
        self._scale = scale
        self._model = model
        self._options = options
        self._seed = seed
        self._round = 0

    def begin_round(self) -> None:
        """The next conversation."""
        self._round += 1

    def alternatives(self) -> tuple[Alternative, Alternative]:
        """With positions decoupled from states, and without."""
        return Alternative(run=self._decoupled), Alternative(run=self._coupled)

    def _prompts(self) -> list[list[int]]:
        dice, work = random.Random(f"{self._seed} {self._round}"), self._scale.workload
        first = self._scale.window - work.turn_tokens - 2 * work.answer_tokens
        counts = [first, *[work.turn_tokens] * self._scale.overflow_turns]
        vocabulary = self._model.config.vocab_size
        return [[dice.randrange(vocabulary) for _ in range(count)] for count in counts]

    def _decoupled(self) -> Measured:
        talks = Keeping(self._client, self._model, self._options)
        taken_s, cuts, restored = [], 0, 0
        answer_tokens = self._scale.workload.answer_tokens
        for prompt in self._prompts():
            wave = take_turns(
                self._model,
                talks,
                [Asked(f"overflowing {self._round}", prompt, answer_tokens)],
                cache_tokens=self._scale.window,
                requests_max=1,
            )
            (turn,) = wave.turns
            taken_s.append(turn.ttft_s)
            cuts += len(turn.completion.cuts)
            restored += turn.completion.restore.restored_tokens
        talks.close()
        if not cuts:
            raise BenchmarkError("no window overflowed")
        return _measured("decoupled", taken_s[1:], restored)

    def _coupled(self) -> Measured:
        states = StateFormat.of_model(
            self._model, f"{MODEL_NAME} coupled", chunk_tokens=CHUNK_TOKENS
        )
        saver = StateSaver(self._client, states)
        restorer = Restorer(self._client, states, self._model, self._options)
        window: list[int] = []
        taken_s, restored = [], 0
        answer_tokens = self._scale.workload.answer_tokens
        for prompt in self._prompts():
            if len(window) + len(prompt) + answer_tokens > self._scale.window:
                window = window[-int(len(window) * (1 - paper.TRUNCATION)) :]
            engine = Engine(
                self._model,
                cache_tokens=self._scale.window,
                requests_max=1,
                sink=saver,
                restorer=restorer,
            )
            engine.warm_up()
            engine.add_request([*window, *prompt], new_tokens_max=answer_tokens, stop_token_ids=())
            (completion,) = engine.run()
            if completion.error is not None:
                raise BenchmarkError(f"a turn failed: {completion.error}")
            saved = saver.finish()
            if saved.dropped_tokens:
                raise BenchmarkError(f"{saved.dropped_tokens} tokens were not saved")
            window = list(completion.token_ids)
            taken_s.append(completion.ttft_s)
            restored += completion.restore.restored_tokens
        restorer.close()
        saver.close()
        return _measured("coupled", taken_s[1:], restored)


def _measured(name: str, taken_s: list[float], restored: int) -> Measured:
    return {
        f"figure_22_{name}_ttft_s": sum(taken_s) / len(taken_s),
        f"figure_22_{name}_ttft_max_s": max(taken_s),
        f"figure_22_{name}_restored": float(restored),
    }


def measure(settings: Settings, scale: Scale, model: Model, folder: Path) -> tuple[Series, ...]:
    """Conversations in both ways, round by round; raises BenchmarkError."""
    costs = Costs(model)
    work = scale.workload
    bytes_per_s = costs.bytes_per_s(3 * scale.window // 4, work.turn_tokens, load_share=1.0)
    window_bytes = scale.window * costs.token_bytes
    options = RestoreOptions(
        compute=costs.compute,
        # In both ways: a restorer of prompts takes spans.
        preload=Preload.SPANS,
        window_rates=costs.rates(bytes_per_s),
        step_tokens=TOKEN_BUDGET,
        least_wait_s=scale.least_wait_s,
    )
    with ExitStack() as stack:
        place = stack.enter_context(scratch_folder(folder, 0))
        status = stack.enter_context(settings.console.status("overflows"))
        daemon = DaemonOptions(
            folder=place,
            device_bytes=costs.slabs_bytes(32 * window_bytes),
            dram_bytes=costs.slabs_bytes(window_bytes),
            arena_bytes_max=512 * MIB,
            device_count=1,
            slab_bytes=costs.slab_bytes,
            device_bytes_per_s_max=int(bytes_per_s),
        )
        _, client = stack.enter_context(served(daemon, name="conversations"))
        lab = OverflowLab(client, scale, model, options, settings.seed)
        samples = interleave(
            [lab.alternatives()],
            rounds=scale.rounds,
            generator=settings.random(),
            announce=lambda text: status.update(f"overflows: {text}"),
            prepare=lab.begin_round,
        )
    gain = ratios(samples["figure_22_coupled_ttft_s"], samples["figure_22_decoupled_ttft_s"])
    return (
        Series(key=FIGURE, unit="x", samples=gain, is_figure=True),
        *(
            Series(key=key, unit="s" if key.endswith("_s") else "tokens", samples=values)
            for key, values in samples.items()
        ),
    )
