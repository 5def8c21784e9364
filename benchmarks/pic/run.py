"""Runs the benchmark of linked prompts.

Its times are those of all methods and lengths in turn, from devices and DRAM, by a model of random
weights. Tokens are compared there, but not judged. Answers are judged apart, by a trained model.
"""

from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.benchmark import Settings
from benchmarks.document import document_tokens
from benchmarks.interleave import Alternative, interleave
from benchmarks.kit.daemon_process import DaemonOptions, served
from benchmarks.kit.scratch_model import torch_threads, write_scratch_model
from benchmarks.pic.facts.measured import judge, tell
from benchmarks.pic.figures import FAST, details_of, figures_of, ttft_key
from benchmarks.pic.linked import CountedModel, LinkedPrompts
from benchmarks.pic.plot import plot_ttft
from benchmarks.pic.scale import FULL, FULL_METHOD, OF_FIGURES, QUICK, Scale
from benchmarks.report import Series
from benchmarks.scratch import scratch_folder

ARENA_BYTES = 512 * 1024 * 1024
WARM, COLD = "warm", "cold"
TIMES, LENGTHS, ANSWERS = "times", "lengths", "answers"
"""The parts. No figure is of times and answers: weights are random where times are measured."""
PICTURES = {TIMES: "pic_times.png", LENGTHS: "pic_lengths.png"}


def run(settings: Settings) -> tuple[Series, ...]:
    """The parts that were chosen, at one of two sizes; raises BenchmarkError."""
    scale = QUICK if settings.quick else FULL
    parts = settings.parts or (TIMES, ANSWERS)
    found: tuple[Series, ...] = ()
    if TIMES in parts or LENGTHS in parts:
        is_whole = TIMES in parts
        methods = scale.methods if is_whole else OF_FIGURES
        picture = PICTURES[TIMES if is_whole else LENGTHS]
        found += measure(settings, replace(scale, methods=methods), picture=picture)
        settings.keep(found)
    if ANSWERS in parts:
        judged = judge(settings, scale.libraries, scale.ways)
        settings.keep((*found, *judged.series()))
        found += tell(judged)
    return found


def measure(settings: Settings, scale: Scale, *, picture: str) -> tuple[Series, ...]:
    """Measures every method at every length, and draws it."""
    with ExitStack() as stack:
        stack.enter_context(torch_threads(spare_cores=1))
        folder = stack.enter_context(scratch_folder(settings.folder, scale.scratch_bytes))
        write_scratch_model(folder / "model", scale.shape)
        model = CountedModel.from_directory(folder / "model")
        bench = _Bench(settings, scale, model, _places(stack, folder, scale, model))
        samples = bench.measure()
    if settings.plots is not None:
        lines = {
            name: [median(samples[ttft_key(name, WARM, length)]) for length in scale.lengths]
            for name in scale.methods
        }
        title = f"{scale.shape.layer_count} layers of {scale.shape.hidden_size}, states in DRAM"
        plot_ttft(settings.plots / picture, title, scale.lengths, lines)
    figures = figures_of(samples, scale.lengths, equal=bench.equal)
    return (*figures, *details_of(samples))


def _places(
    stack: ExitStack, folder: Path, scale: Scale, model: CountedModel
) -> dict[str, LinkedPrompts]:
    """The same entries in a daemon with much DRAM and in one with hardly any.

    With so little DRAM entries cannot be made: that daemon had more before it was started again.
    """
    token_ids = document_tokens(folder / "model", max(scale.lengths))
    found: dict[str, LinkedPrompts] = {}
    for place in (WARM, COLD):
        (folder / place).mkdir()
        options = DaemonOptions(
            folder=folder / place,
            device_bytes=scale.device_bytes,
            dram_bytes=scale.warm_dram_bytes,
            slab_bytes=scale.slab_bytes,
            arena_bytes_max=ARENA_BYTES,
        )
        if place == COLD:
            with (
                served(options, name="pic making") as (_, client),
                closing(LinkedPrompts(scale, model, client, token_ids)),
            ):
                pass
            options = replace(options, dram_bytes=scale.cold_dram_bytes, is_formatted=True)
        _, client = stack.enter_context(served(options, name=f"pic {place}"))
        prompts = LinkedPrompts(scale, model, client, token_ids)
        found[place] = stack.enter_context(closing(prompts))
    return found


class _Bench:
    """All alternatives, and whether those that must give the same tokens did."""

    def __init__(
        self,
        settings: Settings,
        scale: Scale,
        model: CountedModel,
        places: dict[str, LinkedPrompts],
    ) -> None:
        self._settings = settings
        self._scale = scale
        self._model = model
        self._places = places
        self._first_tokens: dict[tuple[str, int], int] = {}
        self.equal: list[bool] = []

    def measure(self) -> dict[str, tuple[float, ...]]:
        """The samples of each key."""
        for length in self._scale.lengths:
            plain = self._places[WARM].plain(length)
            self._first_tokens[FULL_METHOD, length] = plain.first_token
        groups = [
            [
                Alternative(run=partial(self._link, name, place, length))
                for name in self._scale.methods
                # What is computed as a whole is loaded from nowhere.
                if place == WARM or name != FULL_METHOD
            ]
            for length in self._scale.lengths
            for place in self._places
        ]
        return interleave(
            groups,
            rounds=self._scale.rounds,
            generator=self._settings.random(),
            announce=self._settings.console.print,
        )

    def _link(self, name: str, place: str, length: int) -> dict[str, float]:
        prompts = self._places[place]
        link = prompts.link(name, length)
        prompts.check(link, name, is_cold=place == COLD)
        # From wherever the states come, and in every round, they are the same.
        known = self._first_tokens.setdefault((name, length), link.first_token)
        self.equal.append(known == link.first_token)
        found = {ttft_key(name, place, length): link.ttft_s}
        if name == FAST:
            # What loading takes, and computing, is known where one follows the other.
            parted = prompts.link(name, length, overlaps=False)
            prompts.check(parted, name, is_cold=place == COLD)
            self.equal.append(parted.first_token == link.first_token)
            bound_s = max(parted.load_s, parted.ttft_s - parted.load_s)
            found[f"{name}_{place}_{length}_over_bound"] = link.ttft_s / bound_s
            found[f"{name}_{place}_{length}_over_parted"] = link.ttft_s / parted.ttft_s
            found[f"{name}_{place}_{length}_steps"] = float(parted.pass_count)
            found[f"{name}_{place}_{length}_overlapped_steps"] = float(link.pass_count)
        return found
