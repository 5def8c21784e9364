"""Which paragraphs count as English prose."""

import pytest

from benchmarks.training.prose import PARAGRAPH_CHARACTERS_MAX, is_prose, new_prose

SENTENCE = "The daemon keeps the states of a conversation and hands them back in the order of use."


@pytest.mark.parametrize(
    "other",
    [
        "Too short to be of any use.",
        SENTENCE * (PARAGRAPH_CHARACTERS_MAX // len(SENTENCE) + 1),
        f"{SENTENCE} caf\u00e9",
        "0x00 0x01 0x02 0x03 the of and to a in is that 0x04 0x05 0x06 0x07 0x08 0x09 0x10",
        "the internationalization of multidimensional transformations notwithstanding is as it be",
        "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho",
    ],
)
def test_other_things_are_no_prose(other: str) -> None:
    assert not is_prose(other)


def test_a_sentence_is() -> None:
    assert is_prose(SENTENCE)


def test_a_paragraph_comes_once() -> None:
    held_out = SENTENCE.replace("daemon", "server")
    seen = {held_out}
    found = list(new_prose([SENTENCE, "No.", held_out, SENTENCE], seen))
    assert found == [SENTENCE]
    assert seen == {held_out, SENTENCE}
