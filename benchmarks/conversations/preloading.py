"""One turn whose window comes from a device: histories and read buffers (figures 18 and 19).

Reading BUFFER_HISTORY tokens takes as many times as long as computing BUFFER_NEW as it does in
figure 19. DRAM has room for a slab: every window comes from the device.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.benchmark import BenchmarkError, Settings
from benchmarks.conversations import paper
from benchmarks.conversations.costs import Costs
from benchmarks.conversations.scale import Scale
from benchmarks.conversations.talking import Asked, Forgetting, Keeping, take_turns
from benchmarks.conversations.timed_talk import Preloading, layers_come
from benchmarks.interleave import Alternative, Group, Measured, interleave, ratios
from benchmarks.kit.daemon_process import DaemonOptions
from benchmarks.kit.slow_machine import SlowMachine
from benchmarks.report import Series
from benchmarks.scratch import scratch_folder
from engine_adapters.restore import Preload
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.restore.restore_options import RestoreOptions
from kvstored_client import Client

MIB = 1024 * 1024
LEAST_WAIT_S = 1.0
"""No window is given up here: what is measured is loading."""
ARENA_BYTES = 512 * MIB
DEVICE_SPARE = 2
FIGURE = "preload_hidden_share"
HISTORIES, BUFFERS = "18", "19"
SPANS, LAYERS, FULL_BUFFER, S_BUF = "spans", "layers", "full_buffer", "s_buf"


class PreloadingLab:
    """Saved conversations of several lengths, of which the same next turn is taken repeatedly."""

    def __init__(self, scale: Scale, model: Model, folder: Path, seed: int) -> None:
        self._model = model
        self.costs = Costs(model)
        self.bytes_per_s = self.costs.bytes_per_s(
            paper.BUFFER_HISTORY, paper.BUFFER_NEW, load_share=paper.LOAD_OVER_PREFILL
        )
        self._lengths = sorted({paper.BUFFER_HISTORY, *(told for told, _ in scale.histories)})
        saved_bytes = sum(self._lengths) * self.costs.token_bytes
        options = DaemonOptions(
            folder=folder,
            device_bytes=self.costs.slabs_bytes(DEVICE_SPARE * saved_bytes),
            dram_bytes=1024 * MIB,
            arena_bytes_max=ARENA_BYTES,
            device_count=1,
            slab_bytes=self.costs.slab_bytes,
        )
        self._machine = SlowMachine(
            options, restoring_dram_bytes=self.costs.slab_bytes, name="conversations"
        )
        dice = random.Random(seed)
        self._text = [
            dice.randrange(model.config.vocab_size) for _ in range(2 * max(self._lengths))
        ]
        self._forgotten = Forgetting()
        self._answers: dict[tuple[int, int], tuple[int, ...]] = {}

    def save(self) -> None:
        """The first turn of a conversation of each length."""
        with self._machine.saving() as client:
            talks = Keeping(client, self._model, RestoreOptions())
            for length in self._lengths:
                # The answer's last token is only sampled: it is the first of the next turn.
                asked = [Asked(_name(length), self._text[:length], 1)]
                for kept in (talks, self._forgotten):
                    take_turns(self._model, kept, asked, cache_tokens=length + 1)
            talks.close()

    @contextmanager
    def slow(self) -> Iterator[Client]:
        """A client of the device at its rate."""
        with self._machine.restoring(self.bytes_per_s) as device:
            yield device.client

    def options(self, preload: Preload) -> RestoreOptions:
        """Of windows that come in this way."""
        return RestoreOptions(
            compute=self.costs.compute,
            preload=preload,
            window_rates=self.costs.rates(self.bytes_per_s),
            least_wait_s=LEAST_WAIT_S,
        )

    def seconds(
        self,
        talks: Forgetting | Keeping,
        history_tokens: int,
        new_tokens: int,
        preload: Preloading | None = None,
    ) -> float:
        """From taking up the turn to its first token; raises BenchmarkError for another one."""
        wave = take_turns(
            self._model,
            talks,
            [Asked(_name(history_tokens), self._text[history_tokens:][: new_tokens - 1], 1)],
            cache_tokens=history_tokens + new_tokens + 1,
            keeps=False,
            preload=preload,
        )
        (turn,) = wave.turns
        completion, key = turn.completion, (history_tokens, new_tokens)
        if self._answers.setdefault(key, completion.generated_ids) != completion.generated_ids:
            raise BenchmarkError(f"another token followed a history of {history_tokens} tokens")
        restored = completion.restore.restored_tokens
        if isinstance(talks, Keeping) and restored != history_tokens:
            raise BenchmarkError(f"only {restored} of {history_tokens} tokens were restored")
        return turn.ttft_s

    def recompute(self, history_tokens: int, new_tokens: int) -> float:
        """The same with all computed."""
        return self.seconds(self._forgotten, history_tokens, new_tokens)


def _name(length: int) -> str:
    return f"talk of {length}"


def measure(
    settings: Settings, scale: Scale, model: Model, folder: Path, figures: Sequence[str]
) -> tuple[Series, ...]:
    """Those of ``figures`` 18 and 19 that are asked for, round by round."""
    with scratch_folder(folder, 0) as place, settings.console.status("histories") as status:
        lab = PreloadingLab(scale, model, place, settings.seed)
        lab.save()
        with lab.slow() as client:
            ways = {
                way: Keeping(client, model, lab.options(way), saves=False)
                for way in (Preload.SPANS, Preload.LAYERS)
            }
            groups = []
            if HISTORIES in figures:
                groups += [_histories(lab, ways, *setting) for setting in scale.histories]
            if BUFFERS in figures:
                groups.append(_buffers(lab, ways, scale.buffers))
            samples = interleave(
                groups,
                rounds=scale.rounds,
                generator=settings.random(),
                announce=lambda text: status.update(f"histories and buffers: {text}"),
            )
            for talks in ways.values():
                talks.close()
    found = tuple(Series(key=key, unit="s", samples=values) for key, values in samples.items())
    if BUFFERS in figures:
        found += (_hidden(samples),)
    limit_mb = lab.bytes_per_s / 1e6
    return (*found, Series(key="histories_device_limit", unit="MB/s", samples=(limit_mb,)))


def _histories(lab: PreloadingLab, ways: dict[Preload, Keeping], told: int, new: int) -> Group:
    """The three bars of a group of figure 18."""
    key = f"figure_18_{told}_{new}"
    return (
        _timed(f"{key}_recompute", partial(lab.recompute, told, new)),
        _timed(f"{key}_{SPANS}", partial(lab.seconds, ways[Preload.SPANS], told, new)),
        _timed(f"{key}_{LAYERS}", partial(lab.seconds, ways[Preload.LAYERS], told, new)),
    )


def _buffers(lab: PreloadingLab, ways: dict[Preload, Keeping], buffers: Sequence[int]) -> Group:
    """The bars of figure 19, with a buffer of S_buf and one of all layers besides."""
    turn = (paper.BUFFER_HISTORY, paper.BUFFER_NEW)
    layers = partial(lab.seconds, ways[Preload.LAYERS], *turn)
    layer_count = lab.costs.layer_count
    waits: dict[str, Preloading | None] = {
        **{f"buffer_{count}": layers_come(count) if count else None for count in buffers},
        S_BUF: layers_come(None),
        FULL_BUFFER: layers_come(layer_count),
    }
    return (
        _timed(f"figure_19_{SPANS}", partial(lab.seconds, ways[Preload.SPANS], *turn)),
        *(_timed(f"figure_19_{name}", partial(layers, wait)) for name, wait in waits.items()),
    )


def _timed(key: str, run: Callable[[], float]) -> Alternative:
    def measured() -> Measured:
        return {key: run()}

    return Alternative(run=measured)


def _hidden(samples: dict[str, tuple[float, ...]]) -> Series:
    """Of the time of loading, what a buffer of S_buf hides.

    Loading is what a turn takes more that begins with nothing there than one with all layers.
    """
    spans, full = samples[f"figure_19_{SPANS}"], samples[f"figure_19_{FULL_BUFFER}"]
    buffered = samples[f"figure_19_{S_BUF}"]
    loading = tuple(before - after for before, after in zip(spans, full, strict=True))
    hidden = tuple(before - after for before, after in zip(spans, buffered, strict=True))
    return Series(key=FIGURE, unit="x", samples=ratios(hidden, loading), is_figure=True)
