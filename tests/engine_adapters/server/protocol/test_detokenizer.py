from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from engine_adapters.server.protocol.detokenizer import HELD_TOKENS_MAX, UNFINISHED, Detokenizer


def decode(token_ids: Sequence[int]) -> str:
    """A token is a byte."""
    return bytes(token_ids).decode(errors="replace")


def pieces(data: bytes) -> list[str]:
    detokenizer = Detokenizer(decode)
    return [*map(detokenizer.push, data), detokenizer.flush()]


def test_a_character_comes_whole() -> None:
    assert pieces("a€b".encode()) == ["a", "", "", "€", "b", ""]


def test_half_a_character_at_the_end_is_shown_as_such() -> None:
    assert pieces("a€".encode()[:-1]) == ["a", "", "", UNFINISHED]


def test_bytes_that_are_no_character_come_with_the_next_one() -> None:
    assert pieces(b"a\xffb") == ["a", "", UNFINISHED + "b", ""]


def test_nothing_is_held_for_ever() -> None:
    made = pieces(b"\xff" * (HELD_TOKENS_MAX + 1))
    assert made[HELD_TOKENS_MAX - 1] == UNFINISHED * HELD_TOKENS_MAX
    assert not any(made[: HELD_TOKENS_MAX - 1])
    assert "".join(made) == UNFINISHED * (HELD_TOKENS_MAX + 1)


def test_a_first_token_may_be_decoded_differently() -> None:
    """As decoders do that leave out the space before a text."""
    words = ["", " the", " store", " keeps"]

    def strip(token_ids: Sequence[int]) -> str:
        return "".join(words[token_id] for token_id in token_ids).removeprefix(" ")

    detokenizer = Detokenizer(strip)
    made = [detokenizer.push(token_id) for token_id in (1, 2, 3, 2)]
    assert made == ["the", " store", " keeps", " store"]


def test_a_token_without_text_is_nothing() -> None:
    assert Detokenizer(lambda _: "").push(1) == ""


@given(st.text("aé€😀", max_size=40))
def test_pieces_are_together_the_text(text: str) -> None:
    made = pieces(text.encode())
    assert "".join(made) == text
    assert not any(UNFINISHED in piece for piece in made) or UNFINISHED in text


@given(st.binary(max_size=40))
def test_pieces_are_together_what_decoding_gives(data: bytes) -> None:
    assert "".join(pieces(data)) == decode(data)
