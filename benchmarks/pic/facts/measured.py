"""Asks a trained model by all ways to link."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import torch

from benchmarks.benchmark import Settings, UntellingError
from benchmarks.kit.daemon_process import DaemonOptions, served
from benchmarks.kit.scratch_model import torch_threads
from benchmarks.pic.facts.asked import Reader, trained_model
from benchmarks.pic.facts.attention import attention_to_first_tokens, watched_model
from benchmarks.pic.facts.judged import Judged
from benchmarks.pic.facts.library import JUDGED, Library
from benchmarks.pic.facts.pictures import plot_attention, plot_pareto
from benchmarks.pic.facts.ways import WAYS, Answer
from benchmarks.report import Series
from benchmarks.scratch import scratch_folder

MIB = 1024 * 1024
DEVICE_BYTES = 2048 * MIB
DRAM_BYTES = 512 * MIB
ARENA_BYTES = 128 * MIB
SCRATCH_BYTES = 4_000_000_000
SPARE_CORES = 1
"""Left to the daemon; threads of so small a model would mostly wait for each other."""
ATTENTION_LIBRARIES = 8
"""Whose prompts are looked into."""
PARETO_PICTURE, ATTENTION_PICTURE = "pic_answers_pareto.png", "pic_answers_attention.png"


def judge(
    settings: Settings,
    library_count: int,
    ways: Sequence[str] = tuple(WAYS),
    directory: Path | None = None,
) -> Judged:
    """Asks one question of each kind of every library by ``ways``; draws what comes out.

    The model is the one in ``directory``, or the one that the repository ships. Raises
    BenchmarkError where states were lost.
    """
    directory = directory or trained_model()
    with (
        torch_threads(spare_cores=SPARE_CORES),
        scratch_folder(settings.folder, SCRATCH_BYTES) as folder,
        served(_options(folder), name="pic answers") as (_, client),
        closing(Reader(client, directory)) as reader,
    ):
        generator = settings.random()
        libraries = [reader.draw(generator, JUDGED) for _ in range(library_count)]
        answers: dict[str, list[Answer]] = {name: [] for name in ways}
        for number, library in enumerate(libraries, start=1):
            settings.console.print(f"asking about library {number} of {library_count}")
            # In another order each time: a machine may become slower meanwhile.
            names = generator.sample(list(ways), len(ways))
            _ask(reader, library, {name: answers[name] for name in names})
        judged = Judged(answers, _attention(settings, directory, libraries[:ATTENTION_LIBRARIES]))
    settings.console.print(judged.table())
    if settings.plots is not None:
        plot_pareto(settings.plots / PARETO_PICTURE, judged)
    return judged


def tell(judged: Judged) -> tuple[Series, ...]:
    """The figures; raises UntellingError where the model cannot tell ways apart."""
    if reason := judged.untelling():
        raise UntellingError(f"this setting cannot tell ways to link apart: {reason}")
    return judged.series()


def _ask(reader: Reader, library: Library, answers: dict[str, list[Answer]]) -> None:
    one_of_each = {question.kind: question for question in library.questions}
    for name, found in answers.items():
        entry_ids = reader.entries(library, WAYS[name])
        found += [reader.ask(entry_ids, each, WAYS[name]) for each in one_of_each.values()]


def _attention(
    settings: Settings, directory: Path, libraries: Sequence[Library]
) -> dict[str, list[float]]:
    """Of each layer, to the first tokens of all documents together.

    The first one of a prompt is a sink in any case; what ``full`` has tells how much that is.
    """
    network = watched_model(directory)
    maps = {
        name: [
            attention_to_first_tokens(
                network,
                [document.token_ids for document in library.documents],
                library.questions[0].prompt,
                is_naive=name == "naive",
            )
            for library in libraries
        ]
        for name in ("naive", "full")
    }
    if settings.plots is not None:
        firsts = {name: found[0].tolist() for name, found in maps.items()}
        plot_attention(settings.plots / ATTENTION_PICTURE, firsts)
    return {
        name: torch.stack([one.sum(1) for one in found]).mean(0).tolist()
        for name, found in maps.items()
    }


def _options(folder: Path) -> DaemonOptions:
    return DaemonOptions(
        folder=folder,
        device_bytes=DEVICE_BYTES,
        dram_bytes=DRAM_BYTES,
        arena_bytes_max=ARENA_BYTES,
    )
