import random
from dataclasses import replace
from typing import Any, cast

from benchmarks.vllm.agreement import Reply
from benchmarks.vllm.server import Conversations, ConversationScale, ServerRun, series
from benchmarks.vllm.server_process import ServerProcess

SCALE = ConversationScale(
    conversations=3, document_words=5, question_words=2, turns_before=1, turns_after=1
)


class Echo:
    """A server that answers with the number of messages."""

    def chat(self, messages: list[dict[str, str]], *, max_tokens: int) -> Reply:
        del max_tokens
        return reply(str(len(messages)))


def reply(text: str) -> Reply:
    return Reply(
        text=text,
        tokens=(text,),
        seconds=("?",),
        margins=(1.0,),
        prompt_tokens=100,
        cached_tokens=64,
    )


def said(conversations: Conversations) -> tuple[list[dict[str, str]], ...]:
    messages: tuple[list[dict[str, Any]], ...] = ([], [], [])
    echo = cast("ServerProcess", Echo())
    conversations.take(echo, range(1), messages)
    conversations.take(echo, range(1, 2), messages)
    return messages


def test_every_turn_has_all_that_was_said_before() -> None:
    for messages in said(Conversations(random.Random(1), SCALE)):
        assert [message["role"] for message in messages] == ["user", "assistant"] * 2
        assert [message["content"] for message in messages[1::2]] == ["1", "3"]
        assert len(messages[0]["content"].split()) == 7
        assert len(messages[2]["content"].split()) == 2


def test_conversations_differ_and_are_the_same_again() -> None:
    first = said(Conversations(random.Random(1), SCALE))
    assert first == said(Conversations(random.Random(1), SCALE))
    assert first[0] != first[1]


def test_figures_tell_a_difference_and_what_was_restored() -> None:
    replies = ([reply("a")],) * 2
    plain = ServerRun(before=replies, after=replies, duration_s=2.0)
    stored = replace(plain, duration_s=1.0, restored_tokens=128.0)
    figures = {one.key: one.value for one in series(plain, stored)}
    assert figures["server_tokens_equal"] == 1.0
    assert figures["server_restored_share"] == 128 / 200
    for other in ({"before": ([reply("a")], [reply("b")])}, {"after": ([reply("b")], replies[0])}):
        assert series(plain, replace(stored, **other))[0].value == 0.0
