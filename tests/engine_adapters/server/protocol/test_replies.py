import pytest

from engine_adapters.server.protocol.replies import (
    AnswerHead,
    Usage,
    cache_reply,
    deleted_conversation_reply,
    deleted_reply,
    listed,
    model_reply,
)

USAGE = Usage(prompt_tokens=5, new_tokens=2, restored_tokens=3)
COUNTS = {
    "prompt_tokens": 5,
    "completion_tokens": 2,
    "total_tokens": 7,
    "prompt_tokens_details": {"cached_tokens": 3},
}


@pytest.fixture
def chat() -> AnswerHead:
    return AnswerHead(answer_id="chatcmpl-1", model="m", created_s=9, is_chat=True)


@pytest.fixture
def text() -> AnswerHead:
    return AnswerHead(answer_id="cmpl-1", model="m", created_s=9, is_chat=False)


def reply(head: AnswerHead, kind: str, choice: object, **more: object) -> object:
    return {
        "id": head.answer_id,
        "object": kind,
        "created": 9,
        "model": "m",
        "choices": [] if choice is None else [choice],
        **more,
    }


def choice(reason: str | None, **said: object) -> object:
    return {"index": 0, **said, "logprobs": None, "finish_reason": reason}


def test_a_whole_chat(chat: AnswerHead) -> None:
    said = choice("stop", message={"role": "assistant", "content": "a"})
    assert chat.whole("a", "stop", USAGE) == reply(chat, "chat.completion", said, usage=COUNTS)


def test_a_whole_text(text: AnswerHead) -> None:
    said = choice("length", text="a")
    assert text.whole("a", "length", USAGE) == reply(text, "text_completion", said, usage=COUNTS)


def test_a_streamed_chat(chat: AnswerHead) -> None:
    kind = "chat.completion.chunk"
    began = choice(None, delta={"role": "assistant", "content": ""})
    assert chat.first() == reply(chat, kind, began)
    assert chat.piece("a") == reply(chat, kind, choice(None, delta={"content": "a"}))
    assert chat.last("stop") == reply(chat, kind, choice("stop", delta={}))
    assert chat.usage(USAGE) == reply(chat, kind, None, usage=COUNTS)


def test_a_streamed_text(text: AnswerHead) -> None:
    kind = "text_completion"
    assert text.first() is None
    assert text.piece("a") == reply(text, kind, choice(None, text="a"))
    assert text.last("length") == reply(text, kind, choice("length", text=""))


def test_models_caches_and_conversations() -> None:
    model = model_reply("m", 3)
    assert listed([model]) == {"object": "list", "data": [model]}
    assert model == {"id": "m", "object": "model", "created": 3, "owned_by": "kvstored"}
    assert cache_reply("cc-1", token_count=4, created_s=1, expires_s=None) == {
        "id": "cc-1",
        "object": "context_cache",
        "created": 1,
        "expires_at": None,
        "tokens": 4,
    }
    assert deleted_reply("cc-1")["deleted"] is True
    assert deleted_conversation_reply("talk") == {
        "id": "talk",
        "object": "conversation.deleted",
        "deleted": True,
    }
