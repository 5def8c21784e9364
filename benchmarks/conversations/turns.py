"""Conversations that wait for each other: AttentionStore, LRU without hints, and recomputing.

Figures 14 to 17. DRAM holds an eighth of the working set, and the device is as slow as computing
the new tokens of a turn, or ``SLOWER_X`` times as slow.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from benchmarks.benchmark import BenchmarkError, Settings
from benchmarks.conversations.costs import Costs
from benchmarks.conversations.same_answers import Talks, ties
from benchmarks.conversations.scale import Scale
from benchmarks.conversations.talking import (
    Asked,
    Forgetting,
    Keeping,
    TurnTaken,
    Wave,
    take_turns,
)
from benchmarks.interleave import Alternative, Measured, interleave, ratios
from benchmarks.kit.daemon_process import DaemonOptions
from benchmarks.kit.slow_machine import SlowMachine
from benchmarks.report import Series, Summary
from benchmarks.scratch import scratch_folder
from engine_adapters.restore import Preload
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.step import NullSink, Segment
from engine_adapters.runner.restore.restore_options import RestoreOptions
from kvstored_client import Client

MIB = 1024 * 1024
DRAM_PART = 8
"""One part in so many of the working set fits DRAM."""
DEVICE_SPARE = 3
"""Times the working set that a device has: slabs are never full."""
ARENA_BYTES = 512 * MIB
"""Half of it has room for three windows, two of which come at once."""
TIES_SHARE = 0.25
"""Of the conversations, those that may part at a tie: what comes after it is not compared."""
OURS, LRU, RECOMPUTE = "ours", "lru", "recompute"
SLOWER_X = 2.0
SLOWER_FIGURE = "ttft_vs_lru_slower_x"
FIGURES = (
    "ttft_vs_recompute_x",
    "ttft_vs_lru_x",
    "prefill_tokens_per_s_x",
    "dram_hit_share",
    "tokens_equal",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """All turns after the ``first`` ones; ``duration_s`` of the engine, its GPU time."""

    first: tuple[TurnTaken, ...]
    turns: tuple[TurnTaken, ...]
    duration_s: float

    @property
    def ttft_s(self) -> float:
        """The mean of all turns."""
        return sum(turn.ttft_s for turn in self.turns) / len(self.turns)

    @property
    def prefill_tokens_per_s(self) -> float:
        """Tokens of histories and prompts, in the time until first tokens."""
        tokens = sum(turn.completion.prompt_tokens for turn in self.turns)
        return tokens / sum(turn.ttft_s for turn in self.turns)

    @property
    def dram_share(self) -> float:
        """Of the bytes that came, those from DRAM."""
        reports = [turn.completion.restore for turn in self.turns]
        dram = sum(report.dram_bytes for report in reports)
        return dram / max(1, dram + sum(report.device_bytes for report in reports))

    @property
    def by_layers_share(self) -> float:
        """Turns whose window came layer by layer."""
        return sum(turn.completion.restore.is_by_layers for turn in self.turns) / len(self.turns)

    @property
    def restored_share(self) -> float:
        """Of the tokens of histories and prompts, those that were restored."""
        restored = sum(turn.completion.restore.restored_tokens for turn in self.turns)
        prompts = sum(turn.completion.prompt_tokens for turn in self.turns)
        return restored / prompts

    def talks(self) -> Talks:
        """The turns of each conversation, in order."""
        found: Talks = {}
        for turn in (*self.first, *self.turns):
            found.setdefault(turn.name, []).append(turn.completion)
        return found


class TurnsLab:
    """The same conversations in three ways, each on daemons and devices of its own."""

    def __init__(
        self,
        settings: Settings,
        scale: Scale,
        model: Model,
        folder: Path,
        *,
        load_share: float = 1.0,
    ) -> None:
        """Loading a history takes ``load_share`` times as long as computing a turn's tokens."""
        self._settings = settings
        self._scale = scale
        self._model = model
        self._folder = folder
        self._costs = Costs(model)
        work = scale.workload
        history = work.first_tokens + work.turns * (work.turn_tokens + work.answer_tokens) // 2
        self.bytes_per_s = self._costs.bytes_per_s(history, work.turn_tokens, load_share=load_share)
        self.working_bytes = work.count * work.tokens_max * self._costs.token_bytes
        self._round = 0
        self._served: dict[str, Served] = {}

    def alternatives(self, *ways: str) -> tuple[Alternative, ...]:
        """A round of them has the same conversations in the same order."""
        return tuple(Alternative(run=self._runner(way)) for way in ways)

    def begin_round(self) -> None:
        """The next conversations."""
        self._round += 1
        self._served = {}

    def _runner(self, way: str) -> Callable[[], Measured]:
        def run() -> Measured:
            served_turns = self._serve(way)
            parted = [
                ties(other.talks(), served_turns.talks(), self._logits)
                for other in self._served.values()
            ]
            self._served[way] = served_turns
            tie_count = sum(count or 0 for count in parted)
            ties_max = TIES_SHARE * self._scale.workload.count * len(parted)
            return {
                f"{way}_ttft_s": served_turns.ttft_s,
                f"{way}_gpu_s": served_turns.duration_s,
                f"{way}_prefill_tokens_per_s": served_turns.prefill_tokens_per_s,
                f"{way}_dram_share": served_turns.dram_share,
                f"{way}_restored_share": served_turns.restored_share,
                f"{way}_by_layers_share": served_turns.by_layers_share,
                f"{way}_equal": float(None not in parted and tie_count <= ties_max),
                f"{way}_ties": float(tie_count),
            }

        return run

    def _serve(self, way: str) -> Served:
        """First turns at full speed, and all later ones on the slow device, in a new process."""
        waves = self._waves()
        if way == RECOMPUTE:
            forgetting = Forgetting()
            return _served([self._take(forgetting, asked) for asked in waves])
        with scratch_folder(self._folder, 0) as place:
            machine = SlowMachine(
                DaemonOptions(
                    folder=place,
                    device_bytes=self._costs.slabs_bytes(DEVICE_SPARE * self.working_bytes),
                    dram_bytes=self._costs.slabs_bytes(self.working_bytes),
                    arena_bytes_max=ARENA_BYTES,
                    device_count=1,
                    slab_bytes=self._costs.slab_bytes,
                    retention=None if way == OURS else "lru",
                ),
                restoring_dram_bytes=max(
                    self._costs.slabs_bytes(0), self.working_bytes // DRAM_PART
                ),
                name="conversations",
            )
            with machine.saving() as client, closing(self._keeping(client, way)) as talks:
                first = self._take(talks, next(waves))
            with (
                machine.restoring(self.bytes_per_s) as device,
                closing(self._keeping(device.client, way)) as talks,
            ):
                return _served([first, *(self._take(talks, asked) for asked in waves)])

    def _keeping(self, client: Client, way: str) -> Keeping:
        options = RestoreOptions(
            compute=self._costs.compute,
            # In both: the policies are compared, not the ways to restore.
            preload=Preload.AUTO,
            window_rates=self._costs.rates(self.bytes_per_s),
            least_wait_s=self._scale.least_wait_s,
        )
        return Keeping(client, self._model, options, tells_queue=way == OURS)

    def _logits(self, token_ids: Sequence[int]) -> Tensor:
        """Of the token after these ones, [vocab_size], all computed in one pass."""
        count = len(token_ids)
        segment = Segment(
            request_id=-1, first_row=0, token_count=count, first_position=0, first_slot=0
        )
        return self._model.forward(
            token_ids,
            [segment],
            cache=self._model.make_cache(count),
            sink=NullSink(),
            logit_rows=[count - 1],
        )[0]

    def _take(self, talks: Forgetting | Keeping, asked: Sequence[Asked]) -> Wave:
        work = self._scale.workload
        return take_turns(
            self._model,
            talks,
            asked,
            cache_tokens=2 * work.tokens_max,
        )

    def _waves(self) -> Iterator[list[Asked]]:
        """What all conversations of the round are asked, turn by turn."""
        work, dice = self._scale.workload, random.Random(f"{self._settings.seed} {self._round}")
        names = [f"talk {self._round} {number}" for number in range(work.count)]
        vocabulary = self._model.config.vocab_size
        for number in range(work.turns + 1):
            count = work.turn_tokens if number else work.first_tokens
            asked = [
                Asked(
                    name,
                    _tokens(dice, count, vocabulary),
                    work.answer_tokens + dice.randint(-work.answer_spread, work.answer_spread),
                )
                for name in names
            ]
            dice.shuffle(asked)
            yield asked


def _served(waves: Sequence[Wave]) -> Served:
    first, *later = waves
    return Served(
        first=first.turns,
        turns=tuple(turn for wave in later for turn in wave.turns),
        duration_s=sum(wave.duration_s for wave in later),
    )


def _tokens(dice: random.Random, count: int, vocabulary: int) -> list[int]:
    return [dice.randrange(vocabulary) for _ in range(count)]


def measure(settings: Settings, scale: Scale, model: Model, folder: Path) -> tuple[Series, ...]:
    """Whole workloads in each way, round by round; raises BenchmarkError."""
    lab = TurnsLab(settings, scale, model, folder)
    samples = _samples(settings, scale, lab, (OURS, LRU, RECOMPUTE))
    return (*_figures(samples), *_details("turns", samples, lab))


def measure_slower(
    settings: Settings, scale: Scale, model: Model, folder: Path
) -> tuple[Series, ...]:
    """Both kinds of keeping on the slower device; raises BenchmarkError."""
    lab = TurnsLab(settings, scale, model, folder, load_share=SLOWER_X)
    samples = _samples(settings, scale, lab, (OURS, LRU))
    if not all((*samples["ours_equal"], *samples["lru_equal"])):
        raise BenchmarkError("on the slower device a conversation said something else")
    gain = ratios(samples["lru_ttft_s"], samples["ours_ttft_s"])
    return _figure(SLOWER_FIGURE, "x", gain), *_details("slower", samples, lab)


def _samples(
    settings: Settings, scale: Scale, lab: TurnsLab, ways: Sequence[str]
) -> dict[str, tuple[float, ...]]:
    with settings.console.status("conversations") as status:
        return interleave(
            [lab.alternatives(*ways)],
            rounds=scale.turn_rounds,
            generator=settings.random(),
            announce=lambda text: status.update(f"conversations: {text}"),
            prepare=lab.begin_round,
        )


def _figures(samples: dict[str, tuple[float, ...]]) -> tuple[Series, ...]:
    ours = samples["ours_ttft_s"]
    equal = tuple(value for way in (OURS, LRU, RECOMPUTE) for value in samples[f"{way}_equal"])
    return (
        _figure("ttft_vs_recompute_x", "x", ratios(samples["recompute_ttft_s"], ours)),
        _figure("ttft_vs_lru_x", "x", ratios(samples["lru_ttft_s"], ours)),
        _figure(
            "prefill_tokens_per_s_x",
            "x",
            ratios(samples["ours_prefill_tokens_per_s"], samples["recompute_prefill_tokens_per_s"]),
        ),
        _figure("dram_hit_share", "x", samples["ours_dram_share"]),
        Series(
            key="tokens_equal",
            unit="1 or 0",
            samples=equal,
            summary=Summary.LEAST,
            is_figure=True,
        ),
    )


def _details(part: str, samples: dict[str, tuple[float, ...]], lab: TurnsLab) -> tuple[Series, ...]:
    units = {
        "ttft_s": "s",
        "gpu_s": "s",
        "prefill_tokens_per_s": "tokens/s",
        "ties": "talks",
        "equal": "1 or 0",
    }
    details = [
        Series(
            key=f"{part}_{key}",
            unit=next((unit for end, unit in units.items() if key.endswith(end)), "x"),
            samples=values,
        )
        for key, values in samples.items()
    ]
    return (
        *details,
        Series(key=f"{part}_working_set", unit="MB", samples=(lab.working_bytes / 1e6,)),
        Series(key=f"{part}_device_limit", unit="MB/s", samples=(lab.bytes_per_s / 1e6,)),
    )


def _figure(key: str, unit: str, samples: tuple[float, ...]) -> Series:
    return Series(key=key, unit=unit, samples=samples, is_figure=True)
