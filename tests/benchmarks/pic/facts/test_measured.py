"""Links of a model that has learned nothing: all ways are asked, and the verdict says why not."""

import io
import random
from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.benchmark import BenchmarkError, Settings, UntellingError
from benchmarks.pic.facts import asked, measured
from benchmarks.pic.facts.asked import Reader, trained_model
from benchmarks.pic.facts.library import Kind, LibraryShape
from benchmarks.pic.facts.measured import ATTENTION_PICTURE, PARETO_PICTURE, judge, tell
from benchmarks.pic.facts.ways import WAYS
from benchmarks.quality.held_out import held_out_texts
from benchmarks.training.network import Llama
from kvstored_client.testing import MemoryClient, MemoryStore
from tests.benchmarks.quality.small import SHAPE, write_small_model, write_tokenizer
from tests.support.scale import Scale, at

LIBRARY = LibraryShape(
    document_counts=range(3, 4),
    document_tokens=range(60, 71),
    token_count=210,
    fact_count=2,
    chain_count=2,
    class_count=1,
    example_count=2,
    unknown_count=1,
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reader")
    write_tokenizer(folder, list(held_out_texts().values()))
    write_small_model(folder, Llama(SHAPE, seed=5))
    return folder


def test_a_link_computes_what_its_way_names(directory: Path) -> None:
    found = {}
    with closing(Reader(MemoryClient(MemoryStore()), directory)) as reader:
        library = reader.draw(random.Random(1), LIBRARY)
        question = library.questions[0]
        for name in ("full", "naive", "attnlink16", "sink", "fixed_naive"):
            way = WAYS[name]
            found[name] = reader.ask(reader.entries(library, way), question, way)
    tokens = sum(len(each.token_ids) for each in library.documents) + len(question.prompt)
    assert {each.kind for each in found.values()} == {question.kind}
    assert found["full"].computed_tokens == tokens
    for name in ("naive", "sink", "fixed_naive"):
        assert found[name].computed_tokens == len(question.prompt)
    # Eight on both sides of each of the boundaries, before the question on one.
    assert found["attnlink16"].computed_tokens == len(question.prompt) + 2 * 16 + 8


def test_entries_are_cut_without_looking_or_where_documents_end(directory: Path) -> None:
    with closing(Reader(MemoryClient(MemoryStore()), directory)) as reader:
        library = reader.draw(random.Random(1), LIBRARY)
        documents, again, fixed, sinks = (
            reader.entries(library, WAYS[name])
            for name in ("naive", "attnlink16", "fixed_naive", "sink")
        )
    assert documents == again
    assert len(documents) == len(sinks) == 3
    assert not {*documents} & {*sinks}
    tokens = sum(len(each.token_ids) for each in library.documents)
    assert len(fixed) == -(-tokens // asked.FIXED_TOKENS)


@at(Scale.QUICK)
def test_all_ways_are_asked_the_same(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured, "JUDGED", LIBRARY)
    output = io.StringIO()
    settings = Settings(
        quick=True,
        folder=tmp_path / "scratch",
        seed=1,
        console=Console(file=output, width=200),
        plots=tmp_path / "plots",
    )
    judged = judge(settings, 2, directory=directory)
    assert set(judged.answers) == set(WAYS)
    kinds = {tuple(each.kind for each in answers) for answers in judged.answers.values()}
    assert len(kinds) == 1
    assert sorted(next(iter(kinds))) == sorted(2 * [*Kind])
    assert len(judged.attention["naive"]) == SHAPE.layer_count
    assert "asking about library 2 of 2" in output.getvalue()
    for picture in (PARETO_PICTURE, ATTENTION_PICTURE):
        assert (tmp_path / "plots" / picture).read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["plots"]
    with pytest.raises(UntellingError, match="cannot tell ways to link apart: the model answers"):
        tell(judged)


def test_missing_weights_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked, "TRAINED_MODEL", tmp_path)
    with pytest.raises(BenchmarkError, match="benchmarks.pic.training makes".replace(".", r"\.")):
        trained_model()
