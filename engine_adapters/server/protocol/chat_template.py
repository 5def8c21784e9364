"""The text of a chat, by the template of a checkpoint. Pure."""

from collections.abc import Mapping, Sequence

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from engine_adapters.server.protocol.api_error import ApiError
from engine_adapters.server.protocol.chat_request import CachePart, ContentPart, Message, TextPart

DEFAULT_TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
"""For checkpoints without a template: a line for each message, and the role of the answer."""


class ChatTemplate:
    """As Hugging Face renders templates, in a sandbox. Raises ApiError where one refuses a chat.

    Each ``mark`` is a random text that no client can know: it keeps the places of context caches
    while a template puts its own text around them.
    """

    def __init__(
        self, source: str | None = None, special_tokens: Mapping[str, str] | None = None
    ) -> None:
        """None for a checkpoint without a template. Raises ValueError for one that is broken."""
        self.writes_opening = source is not None
        """Whether the begin-of-sequence token is the template's business."""
        self._special_tokens = dict(special_tokens or {})
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = _raise
        try:
            self._template = environment.from_string(DEFAULT_TEMPLATE if source is None else source)
        except TemplateError as error:
            raise ValueError(f"the chat template is broken: {error}") from error

    def opening(
        self, messages: Sequence[Message], *, mark: str, is_answered: bool = True
    ) -> list[ContentPart]:
        """What comes before the answer to a chat.

        Where it is not to be ``is_answered``, that is without what an answer begins with.
        """
        caches: list[CachePart] = []
        text = self._render(_fields(messages, mark, caches), is_answered=is_answered)
        return _parts(text, mark, caches)

    def continuation(self, messages: Sequence[Message], *, mark: str) -> str:
        """What comes after an answer and before the next one, beginning with the answer's end."""
        before: list[Mapping[str, str]] = [
            {"role": "user", "content": "."},
            {"role": "assistant", "content": mark},
        ]
        text = self._render([*before, *_fields(messages, mark, [])], is_answered=True)
        _, found, after = text.partition(mark)
        if not found:
            raise ApiError(
                "the chat template of this model drops earlier answers, so it cannot "
                "continue a conversation",
                parameter="conversation",
            )
        return after

    def _render(self, messages: Sequence[Mapping[str, str]], *, is_answered: bool) -> str:
        try:
            return self._template.render(
                messages=messages, add_generation_prompt=is_answered, **self._special_tokens
            )
        except (TemplateError, TypeError) as error:
            message = f"the chat template of this model refuses these messages: {error}"
            raise ApiError(message, parameter="messages") from error


def _fields(
    messages: Sequence[Message], mark: str, caches: list[CachePart]
) -> list[Mapping[str, str]]:
    """Messages as templates see them; adds to ``caches`` those that the marks stand for."""
    fields: list[Mapping[str, str]] = []
    for message in messages:
        content = ""
        for part in message.parts:
            if isinstance(part, TextPart):
                content += part.text
            else:
                content += mark
                caches.append(part)
        fields.append({"role": message.role, "content": content})
    return fields


def _parts(text: str, mark: str, caches: Sequence[CachePart]) -> list[ContentPart]:
    """The text with the caches at their marks."""
    first, *others = text.split(mark) if caches else [text]
    if len(others) != len(caches):
        raise ApiError(
            "the chat template of this model drops or repeats messages, so they cannot "
            "have context caches",
            parameter="messages",
        )
    parts: list[ContentPart] = [TextPart(first)]
    for cache, piece in zip(caches, others, strict=True):
        parts += [cache, TextPart(piece)]
    return [part for part in parts if part != TextPart("")]


def _raise(message: str) -> None:
    raise TemplateError(message)
