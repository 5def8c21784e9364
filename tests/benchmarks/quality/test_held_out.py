"""Three texts that are no training text."""

from benchmarks.quality.held_out import HELD_OUT_PACKAGES, held_out_paragraphs, held_out_texts
from benchmarks.quality.perplexity import TURN_TOKENS
from benchmarks.quality.scale import FULL
from benchmarks.training.sources import library_files

CHARACTERS_OF_TOKEN = 6
"""More than a token has."""


def test_texts_are_long_enough_and_plain() -> None:
    texts = held_out_texts()
    assert list(texts) == ["reference", "documents", "docstrings"]
    for name, text in texts.items():
        assert text.isascii(), name
        assert len(text) > FULL.turns * TURN_TOKENS * CHARACTERS_OF_TOKEN, name


def test_paragraphs_of_texts_are_those_that_training_leaves_out() -> None:
    paragraphs = held_out_paragraphs()
    for text in held_out_texts().values():
        assert set(text.split("\n\n")) <= paragraphs


def test_training_reads_no_held_out_package() -> None:
    packages = {path.parent.name for path, _ in library_files()}
    assert packages
    assert not packages.intersection(HELD_OUT_PACKAGES)
