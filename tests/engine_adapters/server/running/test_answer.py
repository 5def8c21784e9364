import asyncio
from collections.abc import Sequence

import pytest

from engine_adapters.server.running.answer import AT_LENGTH, AT_STOP, Answer


def decode(token_ids: Sequence[int]) -> str:
    """A token is a byte."""
    return bytes(token_ids).decode(errors="replace")


async def read(answer: Answer) -> list[str]:
    return [piece async for piece in answer.texts()]


async def test_a_stop_string_of_half_characters_is_found() -> None:
    answer = Answer(decode, stops=["é!"])
    is_enough = await asyncio.to_thread(lambda: [answer.take(byte) for byte in "aé!b".encode()])
    assert is_enough == [False, False, False, True, True]
    answer.end(None)
    assert await read(answer) == ["a"]
    assert answer.reason == AT_STOP
    assert await answer.ended is None


async def test_what_was_held_comes_at_the_end() -> None:
    answer = Answer(decode, stops=["é!"])
    for byte in b"a\xc3\xa9\xe2":
        assert not answer.take(byte)
    answer.end(None)
    assert await read(answer) == ["a", "é\ufffd"]
    assert answer.reason == AT_LENGTH


async def test_a_stop_string_may_be_complete_at_the_end_only() -> None:
    answer = Answer(decode, stops=["\ufffd"])
    for byte in b"a\xe2":
        assert not answer.take(byte)
    answer.end(None)
    assert await read(answer) == ["a"]
    assert answer.reason == AT_STOP


async def test_a_stop_token_has_no_text() -> None:
    answer = Answer(decode, stop_token_ids=(98,))
    assert [answer.take(byte) for byte in b"ab"] == [False, True]
    answer.end(None)
    assert await read(answer) == ["a"]
    assert answer.reason == AT_STOP


async def test_a_tokenizer_that_fails_ends_the_answer_with_its_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(_: Sequence[int]) -> str:
        raise OSError("no vocabulary")

    answer = Answer(fail)
    assert answer.take(1)
    answer.end(None)
    assert await read(answer) == []
    assert await answer.ended is None
    assert "could not be decoded" in caplog.text


async def test_what_kept_the_engine_from_answering_is_its_outcome() -> None:
    answer = Answer(decode)
    error = OSError("no memory")
    answer.end(error)
    assert await read(answer) == []
    assert await answer.ended is error
