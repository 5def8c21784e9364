import random
from typing import Any, cast

from engine_adapters.vllm.testing.agreement import Reply
from engine_adapters.vllm.testing.conversations import Conversations, ConversationScale
from engine_adapters.vllm.testing.server_process import ServerProcess

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
