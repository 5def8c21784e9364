"""Talks through texts and asks for records, with histories cut in three ways."""

from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from benchmarks.benchmark import Settings, UntellingError
from benchmarks.kit.daemon_process import DaemonOptions, served
from benchmarks.kit.scratch_model import torch_threads
from benchmarks.quality.found import NKVT_OVER_TT_MIN, Found
from benchmarks.quality.held_out import held_out_texts
from benchmarks.quality.model import DTYPE, WINDOW_TOKENS, trained_model
from benchmarks.quality.perplexity import TURN_TOKENS, losses_of, perplexity, talk_through
from benchmarks.quality.records import RecordWords
from benchmarks.quality.retrieval import ask, ask_by_talk, draw_question
from benchmarks.quality.scale import FULL, QUICK, Scale
from benchmarks.quality.talk import Talker
from benchmarks.quality.teacher import TeacherModel
from benchmarks.quality.way import Way
from benchmarks.report import Series
from benchmarks.scratch import scratch_folder
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.tokenizer import TOKENIZER_FILE
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Client

MIB = 1024 * 1024
DEVICE_BYTES = 1024 * MIB
DRAM_BYTES = 256 * MIB
ARENA_BYTES = 128 * MIB
SCRATCH_BYTES = 3_000_000_000
SPARE_CORES = 1
"""Left to the daemon; threads of so small a model would mostly wait for each other."""


@dataclass(frozen=True, slots=True)
class Lab:
    """The model, and as a teacher, who talks with that through a store; the tokens of each text."""

    model: Model
    teacher: TeacherModel
    talker: Talker
    words: RecordWords
    texts: dict[str, list[int]]


def run(settings: Settings) -> tuple[Series, ...]:
    """The benchmark; raises UntellingError where wrong positions do not show."""
    scale = QUICK if settings.quick else FULL
    with (
        torch_threads(spare_cores=SPARE_CORES),
        scratch_folder(settings.folder, SCRATCH_BYTES) as folder,
        served(_options(folder), name="quality") as (_, client),
    ):
        found = measure(settings, scale, open_lab(client, trained_model()))
    for table in found.tables():
        settings.console.print(table)
    if not found.can_tell:
        raise UntellingError(
            f"with embedded positions the perplexity is {min(found.ratios(Way.NKVT)):.2f} times "
            f"that of recomputing, not {NKVT_OVER_TT_MIN}: this setting cannot tell"
        )
    return found.series()


def open_lab(client: Client, directory: Path) -> Lab:
    """What ``measure`` works with; the model is the one in ``directory``."""
    teacher = TeacherModel.from_directory(directory, dtype=DTYPE)
    tokenizer = Tokenizer.from_file(str(directory / TOKENIZER_FILE))
    return Lab(
        model=Model.from_directory(directory, dtype=DTYPE),
        teacher=teacher,
        talker=Talker(
            client,
            teacher,
            StateFormat.of_model(teacher, "quality-benchmark"),
            window_tokens=WINDOW_TOKENS,
        ),
        words=RecordWords.of_vocabulary(tokenizer.get_vocab()),
        texts={name: tokenizer.encode(text).ids for name, text in held_out_texts().items()},
    )


def measure(settings: Settings, scale: Scale, lab: Lab) -> Found:
    """Raises BenchmarkError where the store or the cuts were passed by."""
    perplexities: dict[str, dict[Way, float]] = {}
    for name, token_ids in lab.texts.items():
        settings.console.print(f"talking through {name}")
        perplexities[name] = _perplexities(lab, name, token_ids[: scale.turns * TURN_TOKENS])
    settings.console.print(f"asking {scale.questions} questions")
    hits = _hits(settings, lab, scale.questions)
    return Found(perplexities, hits)


def _perplexities(lab: Lab, name: str, script: list[int]) -> dict[Way, float]:
    losses, cuts = talk_through(lab.talker, lab.teacher, name, script)
    return {Way.AS: perplexity(losses, cuts)} | {
        way: perplexity(losses_of(lab.model, script, cuts, way, window_tokens=WINDOW_TOKENS), cuts)
        for way in (Way.TT, Way.NKVT)
    }


def _hits(settings: Settings, lab: Lab, question_count: int) -> dict[Way, tuple[bool, ...]]:
    generator = settings.random()
    text = [token_id for token_ids in lab.texts.values() for token_id in token_ids]
    hits: dict[Way, list[bool]] = {way: [] for way in Way}
    for number in range(question_count):
        question = draw_question(generator, lab.words, text, window_tokens=WINDOW_TOKENS)
        by_talk = ask_by_talk(lab.talker, lab.teacher, f"question {number}", question)
        hits[Way.AS].append(by_talk == question.answer)
        for way in (Way.TT, Way.NKVT):
            answer = ask(lab.model, question, way, window_tokens=WINDOW_TOKENS)
            hits[way].append(answer == question.answer)
    return {way: tuple(each) for way, each in hits.items()}


def _options(folder: Path) -> DaemonOptions:
    return DaemonOptions(
        folder=folder,
        device_bytes=DEVICE_BYTES,
        dram_bytes=DRAM_BYTES,
        arena_bytes_max=ARENA_BYTES,
    )
