"""The same waiting conversations, kept in several ways: each on a copy of the same saved device."""

import os
import random
import subprocess
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

from torch import Tensor

from benchmarks.benchmark import Settings
from benchmarks.conversations.costs import Costs
from benchmarks.conversations.same_answers import Talks, ties
from benchmarks.conversations.scale import Scale
from benchmarks.conversations.talking import (
    REQUESTS_MAX,
    Asked,
    Forgetting,
    Keeping,
    TurnTaken,
    Wave,
    take_turns,
)
from benchmarks.interleave import Alternative, Measured
from benchmarks.kit.daemon_process import DaemonOptions
from benchmarks.kit.slow_machine import SlowMachine
from benchmarks.scratch import scratch_folder
from engine_adapters.restore import Preload
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.step import NullSink, Segment
from engine_adapters.runner.restore.restore_options import RestoreOptions
from kvstored_client import Client

MIB = 1024 * 1024
DRAM_PART = 8
"""One part in so many of the working set fits DRAM."""
DEVICE_SPARE = 2
"""Times the working set that a device has: slabs are never full."""
ARENA_BYTES = 512 * MIB
"""Half of it has room for three windows, two of which come at once."""
TIES_SHARE = 0.25
"""Of the conversations, those that may part at a tie: what comes after it is not compared."""
OURS, LRU, RECOMPUTE = "ours", "lru", "recompute"


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """All turns after the first ones; ``duration_s`` of the engine, its GPU time.

    Its thread had a core for ``busy_s`` of that.
    """

    turns: tuple[TurnTaken, ...]
    duration_s: float
    busy_s: float

    @classmethod
    def of(cls, waves: Sequence[Wave]) -> Self:
        """What these waves came to."""
        return cls(
            turns=tuple(turn for wave in waves for turn in wave.turns),
            duration_s=sum(wave.duration_s for wave in waves),
            busy_s=sum(wave.busy_s for wave in waves),
        )

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
        for turn in self.turns:
            found.setdefault(turn.name, []).append(turn.completion)
        return found


class TurnsLab:
    """Conversations whose first turns are saved once, and which go on in several ways.

    A round has the same later turns in the same order, whatever the way. Each way has a daemon and
    a copy of the device of its own, and what it answers is compared with the others of the round.
    """

    def __init__(self, settings: Settings, scale: Scale, model: Model, folder: Path) -> None:
        self._seed = settings.seed
        self._scale = scale
        self._model = model
        self._folder = folder
        self._saved_folder = folder / "saved"
        self._costs = Costs(model)
        work = scale.workload
        history = work.first_tokens + work.turns * (work.turn_tokens + work.answer_tokens) // 2
        self._bytes_per_s = self._costs.bytes_per_s(history, work.turn_tokens, load_share=1.0)
        self.working_bytes = work.count * work.tokens_max * self._costs.token_bytes
        self._names = [f"talk {number}" for number in range(work.count)]
        self._round = 0
        self._first: dict[str, tuple[int, ...]] = {}
        self._said: list[Talks] = []

    def bytes_per_s(self, load_share: float) -> float:
        """Of the device from which a history comes in so many times a turn's prefill."""
        return self._bytes_per_s / load_share

    def save(self) -> None:
        """The first turns of all, at full speed."""
        self._saved_folder.mkdir(parents=True)
        with (
            self._machine(self._saved_folder).saving() as client,
            closing(self._keeping(client, OURS, 1.0)) as talks,
        ):
            wave = self._take(talks, self._asked(0))
        self._first = {turn.name: turn.completion.token_ids for turn in wave.turns}

    def begin_round(self) -> None:
        """The next turns."""
        self._round += 1
        self._said = []

    def alternative(self, part: str, way: str, load_share: float) -> Alternative:
        """Serves a round in this way; its series begin with both names."""
        return Alternative(run=partial(self._measure, f"{part}_{way}", way, load_share))

    def _measure(self, key: str, way: str, load_share: float) -> Measured:
        served = self._serve(way, load_share)
        parted = [ties(said, served.talks(), self._logits) for said in self._said]
        self._said.append(served.talks())
        tie_count = sum(count or 0 for count in parted)
        ties_max = TIES_SHARE * self._scale.workload.count * len(parted)
        return {
            f"{key}_ttft_s": served.ttft_s,
            f"{key}_gpu_s": served.duration_s,
            f"{key}_busy_share": served.busy_s / served.duration_s,
            f"{key}_prefill_tokens_per_s": served.prefill_tokens_per_s,
            f"{key}_dram_share": served.dram_share,
            f"{key}_restored_share": served.restored_share,
            f"{key}_by_layers_share": served.by_layers_share,
            f"{key}_equal": float(None not in parted and tie_count <= ties_max),
            f"{key}_ties": float(tie_count),
        }

    def _serve(self, way: str, load_share: float) -> Served:
        """All later turns, on the slow device and in a new process."""
        turns = range(1, self._scale.workload.turns + 1)
        if way == RECOMPUTE:
            forgetting = Forgetting(dict(self._first))
            return Served.of([self._take(forgetting, self._asked(number)) for number in turns])
        with scratch_folder(self._folder, 0) as place:
            _copy(self._saved_folder, place)
            machine = self._machine(place, None if way == OURS else "lru")
            with (
                machine.restoring(self.bytes_per_s(load_share)) as device,
                closing(self._keeping(device.client, way, load_share)) as talks,
            ):
                return Served.of([self._take(talks, self._asked(number)) for number in turns])

    def _machine(self, folder: Path, retention: str | None = None) -> SlowMachine:
        return SlowMachine(
            DaemonOptions(
                folder=folder,
                device_bytes=self._costs.slabs_bytes(DEVICE_SPARE * self.working_bytes),
                dram_bytes=self._costs.slabs_bytes(self.working_bytes),
                arena_bytes_max=ARENA_BYTES,
                device_count=1,
                slab_bytes=self._costs.slab_bytes,
                retention=retention,
            ),
            restoring_dram_bytes=max(self._costs.slabs_bytes(0), self.working_bytes // DRAM_PART),
            name="conversations",
        )

    def _keeping(self, client: Client, way: str, load_share: float) -> Keeping:
        options = RestoreOptions(
            compute=self._costs.compute,
            # In both: the policies are compared, not the ways to restore.
            preload=Preload.AUTO,
            window_rates=self._costs.rates(self.bytes_per_s(load_share)),
            least_wait_s=self._scale.least_wait_s,
        )
        return Keeping(client, self._model, options, tells_queue=way == OURS)

    def _take(self, talks: Forgetting | Keeping, asked: Sequence[Asked]) -> Wave:
        cache_tokens = REQUESTS_MAX * self._scale.workload.tokens_max
        return take_turns(self._model, talks, asked, cache_tokens=cache_tokens)

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

    def _asked(self, number: int) -> list[Asked]:
        """What all conversations are asked in a turn of the round; 0 is the first turn of all."""
        work, vocabulary = self._scale.workload, self._model.config.vocab_size
        dice = random.Random(f"{self._seed} {self._round if number else 0} {number}")
        count = work.turn_tokens if number else work.first_tokens
        asked = [
            Asked(
                name,
                [dice.randrange(vocabulary) for _ in range(count)],
                work.answer_tokens + dice.randint(-work.answer_spread, work.answer_spread),
            )
            for name in self._names
        ]
        dice.shuffle(asked)
        return asked


def _copy(saved: Path, place: Path) -> None:
    """All files of a daemon that has ended; what was never written stays a hole.

    Nothing is left to be written, or in the page cache: a read of it would wait for that first.
    """
    subprocess.run(["cp", "-a", "--sparse=always", f"{saved}/.", place], check=True)
    for path in filter(Path.is_file, place.rglob("*")):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
