"""The body of ``/v1/chat/completions``. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from engine_adapters.server.protocol.fields import Fields
from engine_adapters.server.protocol.generation import Generation, read_generation
from engine_adapters.server.protocol.limits import Limits

ROLES = ("system", "developer", "user", "assistant")


@dataclass(frozen=True, slots=True)
class TextPart:
    """Text of a message."""

    text: str


@dataclass(frozen=True, slots=True)
class CachePart:
    """The text of a context cache, whose states are linked into the prompt."""

    entry_id: str


ContentPart = TextPart | CachePart


@dataclass(frozen=True, slots=True)
class Message:
    """What one side said; ``parts`` follow each other without anything between them."""

    role: str
    parts: tuple[ContentPart, ...]


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """``messages`` are the new turn alone where it continues a conversation."""

    messages: tuple[Message, ...]
    generation: Generation

    @property
    def names_caches(self) -> bool:
        """Whether any part is a context cache."""
        parts = (part for message in self.messages for part in message.parts)
        return any(isinstance(part, CachePart) for part in parts)


def read_chat_request(body: bytes, limits: Limits) -> ChatRequest:
    """Raises ApiError, which names the key at fault."""
    fields = Fields.of_body(body)
    messages = read_messages(fields)
    generation = read_generation(fields, limits)
    fields.finish()
    request = ChatRequest(messages, generation)
    if generation.conversation is not None and request.names_caches:
        raise fields.refuse("conversation", "left out of a request that names context caches")
    return request


def read_messages(fields: Fields) -> tuple[Message, ...]:
    """The key ``messages``; raises ApiError."""
    value = fields.value("messages")
    if not isinstance(value, list) or not value:
        raise fields.refuse("messages", "a list of messages that is not empty")
    return tuple(
        _message(Fields(one, path=fields.path_of(f"messages[{number}]")))
        for number, one in enumerate(value)
    )


def _message(fields: Fields) -> Message:
    role = fields.required_text("role")
    if role not in ROLES:
        raise fields.refuse("role", f"one of {', '.join(ROLES)}")
    value = fields.value("content")
    if isinstance(value, str):
        parts: tuple[ContentPart, ...] = (TextPart(value),)
    elif isinstance(value, list):
        parts = tuple(_parts(fields, value))
    else:
        raise fields.refuse("content", "a string or a list of parts")
    fields.finish()
    return Message(role, parts)


def _parts(fields: Fields, values: list[object]) -> Iterator[ContentPart]:
    for number, value in enumerate(values):
        part = Fields(value, path=fields.path_of(f"content[{number}]"))
        kind = part.required_text("type")
        if kind == "text":
            text = part.value("text")
            if not isinstance(text, str):
                raise part.refuse("text", "a string")
            yield TextPart(text)
        elif kind == "context_cache":
            yield CachePart(part.required_text("id"))
        else:
            raise part.refuse("type", "text or context_cache")
        part.finish()
