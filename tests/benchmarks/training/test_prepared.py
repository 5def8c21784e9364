"""The text as tokens, made once."""

from pathlib import Path

import pytest

from benchmarks.training import prepared
from benchmarks.training.corpus import Corpus
from benchmarks.training.prepared import prepare

TEXTS = ("A river is a river; it flows.", "A stone is a stone; it lies.")


def test_text_is_gathered_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def gather() -> Corpus:
        calls.append(1)
        return Corpus(TEXTS, {"one": 29, "two": 28})

    monkeypatch.setattr(prepared, "gather", gather)
    said: list[str] = []
    first = prepare(tmp_path / "text", vocab_size=300, report=said.append)
    again = prepare(tmp_path / "text", vocab_size=300, report=said.append)
    assert calls == [1]
    assert len(said) == 2
    assert first.tokenizer.decode(first.tokens.tolist()) == "\n\n".join((*TEXTS, ""))
    assert again.tokens.tolist() == first.tokens.tolist()
    assert again.sources == {"one": 29, "two": 28}
