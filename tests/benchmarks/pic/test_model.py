"""The trained model that links are judged with: it is small, it reads, and it has a sink."""

import json
import random
from collections.abc import Iterator
from contextlib import closing

import pytest

from benchmarks.pic.facts.asked import Reader, trained_model
from benchmarks.pic.facts.attention import attention_to_first_tokens, watched_model
from benchmarks.pic.facts.library import JUDGED, TOLD_KINDS, Library
from benchmarks.pic.facts.ways import WAYS
from benchmarks.pic.training.__main__ import PROGRAM
from benchmarks.pic.training.plan import PLAN
from benchmarks.training.checkpoint import CHECKPOINT_BYTES_MAX, NOTE_FILE
from engine_adapters.runner.model.weights import SINGLE_FILE
from kvstored_client.testing import MemoryClient, MemoryStore
from tests.support.scale import Scale, at

LIBRARIES = 6


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    with closing(Reader(MemoryClient(MemoryStore()), trained_model())) as reader:
        yield reader


@pytest.fixture(scope="module")
def libraries(reader: Reader) -> list[Library]:
    generator = random.Random(11)
    return [reader.draw(generator, JUDGED) for _ in range(LIBRARIES)]


def test_it_is_what_the_plan_makes() -> None:
    note = json.loads((trained_model() / NOTE_FILE).read_text())
    assert note["program"] == PROGRAM
    assert (note["seed"], note["steps"]) == (PLAN.seed, PLAN.step_count)
    # Beside the weights a file has a short header.
    assert (trained_model() / SINGLE_FILE).stat().st_size < CHECKPOINT_BYTES_MAX


@at(Scale.QUICK)
def test_it_answers_what_documents_tell(reader: Reader, libraries: list[Library]) -> None:
    found = {}
    for name in ("full", "attnlink16"):
        way = WAYS[name]
        found[name] = [
            reader.ask(entry_ids, question, way).is_right
            for library in libraries
            for entry_ids in [reader.entries(library, way)]
            for question in {each.kind: each for each in library.questions}.values()
            if question.kind in TOLD_KINDS
        ]
    count = LIBRARIES * len(TOLD_KINDS)
    for name, hits in found.items():
        assert len(hits) == count, name
        assert sum(hits) >= 0.75 * count, name


def test_each_document_of_its_own_begins_with_a_sink(libraries: list[Library]) -> None:
    network = watched_model(trained_model())
    library = libraries[0]
    documents = [document.token_ids for document in library.documents]
    naive, full = (
        attention_to_first_tokens(
            network, documents, library.questions[0].prompt, is_naive=is_naive
        ).sum(1)
        for is_naive in (True, False)
    )
    assert float(naive.max()) > 1.5 * float(full.max())
