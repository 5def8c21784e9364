from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from engine_adapters.server.protocol.stop_scanner import StopScanner


def scan(stops: Sequence[str], pieces: Sequence[str]) -> tuple[list[str], bool]:
    scanner = StopScanner(stops)
    given_pieces = [scanner.push(piece) for piece in pieces]
    return [*given_pieces, scanner.flush()], scanner.is_stopped


def test_without_stop_strings_all_is_certain() -> None:
    assert scan([], ["ab", "c"]) == (["ab", "c", ""], False)


def test_a_stop_string_over_pieces_is_found() -> None:
    assert scan(["END"], ["aE", "N", "D more", "never"]) == (["a", "", "", "", ""], True)


def test_what_only_began_like_one_is_given() -> None:
    assert scan(["END"], ["aEN", "X"]) == (["a", "ENX", ""], False)


def test_what_is_held_comes_at_the_end() -> None:
    assert scan(["END"], ["aEN"]) == (["a", "EN"], False)


def test_the_first_of_several_counts() -> None:
    assert scan(["cd", "b"], ["abcd"]) == (["a", ""], True)


def test_of_two_that_begin_alike_the_shorter_counts() -> None:
    assert scan(["aab", "ab"], ["xa", "ab"]) == (["x", "", ""], True)


@given(
    st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
    st.lists(st.text("ab", max_size=3), max_size=12),
)
def test_however_a_text_is_cut_the_result_is_the_same(stops: list[str], cut: list[str]) -> None:
    text = "".join(cut)
    found = [place for stop in stops if (place := text.find(stop)) >= 0]
    made, is_stopped = scan(stops, cut)
    assert is_stopped == bool(found)
    if not found:
        assert "".join(made) == text
        return
    # The stop string that is complete first ends the text.
    ends = [text.find(stop) + len(stop) for stop in stops if stop in text]
    lengths = [len("".join(cut[:count])) for count in range(len(cut) + 1)]
    known = text[: next(length for length in lengths if length >= min(ends))]
    first = min(place for stop in stops if (place := known.find(stop)) >= 0)
    assert "".join(made) == text[:first]
