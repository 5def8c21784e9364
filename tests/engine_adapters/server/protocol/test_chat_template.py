import pytest

from engine_adapters.server.protocol.chat_request import (
    CachePart,
    ContentPart,
    Message,
    TextPart,
)
from engine_adapters.server.protocol.chat_template import ChatTemplate
from tests.engine_adapters.server.protocol.bodies import refused

MARK = "0123456789abcdef"
CHATML = (
    "{{ bos_token }}{% for message in messages %}"
    "<|{{ message['role'] }}|>{{ message['content'] | trim }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def said(role: str, *parts: ContentPart | str) -> Message:
    return Message(role, tuple(TextPart(one) if isinstance(one, str) else one for one in parts))


@pytest.fixture
def template() -> ChatTemplate:
    return ChatTemplate(CHATML, {"bos_token": "<s>"})


def test_a_checkpoint_has_its_own_way(template: ChatTemplate) -> None:
    messages = [said("system", "Be short. "), said("user", "Hi", "!")]
    text = "<s><|system|>Be short.<|end|>\n<|user|>Hi!<|end|>\n"
    assert template.opening(messages, mark=MARK) == [TextPart(text + "<|assistant|>")]
    assert template.opening(messages, mark=MARK, is_answered=False) == [TextPart(text)]
    assert template.writes_opening


def test_without_a_template_each_message_is_a_line() -> None:
    template = ChatTemplate()
    assert not template.writes_opening
    opening = template.opening([said("user", "Hi")], mark=MARK)
    assert opening == [TextPart("user: Hi\nassistant: ")]
    assert template.continuation([said("user", "So?")], mark=MARK) == "\nuser: So?\nassistant: "


def test_caches_keep_their_places(template: ChatTemplate) -> None:
    one, two = CachePart("cc-1"), CachePart("cc-2")
    messages = [said("system", one, two), said("user", "Read ", one, "?")]
    assert template.opening(messages, mark=MARK) == [
        TextPart("<s><|system|>"),
        one,
        two,
        TextPart("<|end|>\n<|user|>Read "),
        one,
        TextPart("?<|end|>\n<|assistant|>"),
    ]


def test_a_turn_begins_with_the_end_of_the_answer(template: ChatTemplate) -> None:
    text = template.continuation([said("user", "So?")], mark=MARK)
    assert text == "<|end|>\n<|user|>So?<|end|>\n<|assistant|>"


@pytest.mark.parametrize("source", ["{{ messages[0].content }}" * 2, "none"])
def test_a_template_that_loses_places_takes_no_caches(source: str) -> None:
    template = ChatTemplate(source)
    read = [said("user", CachePart("cc-1"))]
    assert refused(lambda: template.opening(read, mark=MARK))[0] == "messages"


def test_a_template_that_drops_answers_continues_nothing() -> None:
    template = ChatTemplate("{{ messages[-1].content }}")
    talk = [said("user", "So?")]
    assert refused(lambda: template.continuation(talk, mark=MARK))[0] == "conversation"


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ messages[0].content + 3 }}",
        "{{ ''.__class__.__mro__ }}",
    ],
)
def test_what_a_template_refuses_is_the_clients_mistake(source: str) -> None:
    template = ChatTemplate(source)
    parameter, message = refused(lambda: template.opening([said("user", "a")], mark=MARK))
    assert parameter == "messages"
    assert message.startswith("the chat template of this model refuses these messages: ")


def test_a_broken_template_is_an_error_at_once() -> None:
    with pytest.raises(ValueError, match="the chat template is broken"):
        ChatTemplate("{% for %}")
