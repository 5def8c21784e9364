"""All documents as one text."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.training import corpus
from benchmarks.training.corpus import gather
from benchmarks.training.markup import plain_paragraphs
from benchmarks.training.sources import Reader

SENTENCE = "The daemon keeps the states of a conversation number {} and hands them back in order."


@pytest.fixture
def files(tmp_path: Path) -> list[tuple[Path, Reader]]:
    paths = [tmp_path / name for name in ("a.txt", "b.txt", "c.txt")]
    for number, path in enumerate(paths):
        shared = SENTENCE.format("zero")
        path.write_text(f"{shared}\n\n{SENTENCE.format('a' * number)}\n\nNo.\n")
    return [(path, plain_paragraphs) for path in paths]


@pytest.fixture(autouse=True)
def sources(monkeypatch: pytest.MonkeyPatch, files: list[tuple[Path, Reader]]) -> None:
    def packages() -> Iterator[tuple[str, list[tuple[Path, Reader]]]]:
        yield "one", files[1:]
        yield "empty", []

    monkeypatch.setattr(corpus, "library_files", lambda: iter(files[:1]))
    monkeypatch.setattr(corpus, "package_files", packages)
    monkeypatch.setattr(corpus, "held_out_paragraphs", lambda: {SENTENCE.format("aa")})


def test_each_paragraph_comes_once_and_none_that_is_held_out() -> None:
    found = gather()
    zero, empty, one = (SENTENCE.format(word) for word in ("zero", "", "a"))
    empty = " ".join(empty.split())
    assert found.documents == (f"{zero}\n\n{empty}", one)
    assert found.text == f"{zero}\n\n{empty}\n\n{one}"
    assert found.sizes == {"python": len(found.documents[0]), "one": len(one)}


def test_no_package_is_most_of_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "PACKAGE_CHARACTERS_MAX", 10)
    monkeypatch.setattr(corpus, "held_out_paragraphs", set)
    assert len(gather().documents) == 2
