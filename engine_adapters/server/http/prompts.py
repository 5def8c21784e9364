"""How a request becomes a prompt of tokens.

Computes; the store is waited for where a request names a conversation or context caches.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine_adapters.conversation.journal import NAME_SUFFIX
from engine_adapters.link.entries import Entry
from engine_adapters.link.errors import LinkError
from engine_adapters.link.method import LinkMethod
from engine_adapters.runner.conversation.continued import ContinuedConversation
from engine_adapters.runner.link.linked_prompt import EntryName, LinkedPrompt, PromptPart
from engine_adapters.runner.model.tokenizer import Tokenizer
from engine_adapters.server.protocol.api_error import ApiError
from engine_adapters.server.protocol.chat_request import (
    CachePart,
    ChatRequest,
    ContentPart,
    Message,
    TextPart,
)
from engine_adapters.server.protocol.limits import Limits
from engine_adapters.server.protocol.prompt_request import PromptRequest
from engine_adapters.server.running.namespace import Namespace
from engine_adapters.server.served_model import ServedModel

MARK_BYTES = 16
CACHE_PARTS_MAX = 1024
"""Context caches that one request names: the engine plans each of them between two steps."""
UNMOVABLE = "this model cannot link context caches, because its states hold positions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What an engine computes: alone, after a ``conversation``, or with a ``link``."""

    token_ids: Sequence[int]
    new_tokens_max: int
    conversation: ContinuedConversation | None = None
    link: LinkedPrompt | None = None


class Prompts:
    """Makes prompts of requests; raises ApiError. Thread-safe."""

    def __init__(self, model: ServedModel, limits: Limits) -> None:
        self._model = model
        self._limits = limits

    def of_prompt(self, request: PromptRequest, namespace: Namespace) -> Prompt:
        """For ``/v1/completions``."""
        talk = _conversation(namespace, request.generation.conversation)
        token_ids = request.prompt
        if isinstance(token_ids, str):
            is_continuation = talk is not None and bool(talk.told.token_ids)
            token_ids = tuple(
                self._model.tokenizer.encode(token_ids, is_continuation=is_continuation)
            )
        return self._bounded(token_ids, request.generation.new_tokens_max, "prompt", talk)

    def of_chat(self, request: ChatRequest, namespace: Namespace) -> Prompt:
        """For ``/v1/chat/completions``."""
        new_tokens_max = request.generation.new_tokens_max
        talk = _conversation(namespace, request.generation.conversation)
        if talk is not None and talk.told.token_ids:
            token_ids = self._next_turn(request.messages, talk.told.token_ids)
            return self._bounded(token_ids, new_tokens_max, "messages", talk)
        parts = self._model.template.opening(request.messages, mark=_mark())
        if request.names_caches:
            return self._linked(parts, request, namespace)
        text = "".join(part.text for part in parts if isinstance(part, TextPart))
        return self._bounded(self._opening(text), new_tokens_max, "messages", talk)

    def of_cache(self, text: str | None, messages: Sequence[Message]) -> list[int]:
        """The tokens of a context cache, which something else may come before."""
        if text is None:
            parts = self._model.template.opening(messages, mark=_mark(), is_answered=False)
            if any(isinstance(part, CachePart) for part in parts):
                raise ApiError("a context cache is made of text alone", parameter="messages")
            text = "".join(part.text for part in parts if isinstance(part, TextPart))
        token_ids = self._model.tokenizer.encode(text, is_continuation=True)
        # It is computed on its own, and one token more than it has is sampled.
        self._bounded(token_ids, 1, "text", None)
        return token_ids

    def _opening(self, text: str) -> list[int]:
        return self._model.tokenizer.encode(
            text, is_continuation=self._model.template.writes_opening
        )

    def _next_turn(self, messages: Sequence[Message], told: Sequence[int]) -> list[int]:
        """What follows an answer; its end token is there already if the model wrote it."""
        text = self._model.template.continuation(messages, mark=_mark())
        token_ids = self._model.tokenizer.encode(text, is_continuation=True)
        ends = self._model.config.stop_token_ids
        if token_ids and told[-1] in ends and token_ids[0] == told[-1]:
            del token_ids[0]
        return token_ids

    def _linked(
        self, parts: Sequence[ContentPart], request: ChatRequest, namespace: Namespace
    ) -> Prompt:
        if namespace.links is None:
            raise ApiError(UNMOVABLE, parameter="messages")
        caches = [part.entry_id for part in parts if isinstance(part, CachePart)]
        if len(caches) > CACHE_PARTS_MAX:
            raise ApiError(
                f"messages name {len(caches)} context caches; at most {CACHE_PARTS_MAX} are linked",
                parameter="messages",
            )
        # Each once, in order: an error names the first one that is over.
        named = dict.fromkeys(caches)
        entries = {entry_id: namespace.entries.get(entry_id) for entry_id in named}
        method = LinkMethod.named(request.generation.method)
        named_parts = self._named(parts)
        # Before the prompt is put together: a body may name one cache many thousand times.
        self._check_length(sum(_token_count(part, entries) for part in named_parts), "messages")
        try:
            link = namespace.links.prompt(named_parts, entries, method)
        except (LinkError, ValueError) as error:
            raise ApiError(str(error), parameter="messages") from error
        made = self._bounded(link.token_ids, request.generation.new_tokens_max, "messages", None)
        return Prompt(token_ids=made.token_ids, new_tokens_max=made.new_tokens_max, link=link)

    def _named(self, parts: Sequence[ContentPart]) -> list[PromptPart]:
        tokenizer: Tokenizer = self._model.tokenizer
        named: list[PromptPart] = []
        if not self._model.template.writes_opening:
            named.append(tokenizer.encode(""))
        for part in parts:
            if isinstance(part, CachePart):
                named.append(EntryName(part.entry_id))
            else:
                named.append(tokenizer.encode(part.text, is_continuation=True))
        return named

    def _bounded(
        self,
        token_ids: Sequence[int],
        new_tokens_max: int | None,
        parameter: str,
        talk: ContinuedConversation | None,
    ) -> Prompt:
        """A prompt that the limits allow, and that fits the window with its answer."""
        count = len(token_ids)
        self._check_length(count, parameter)
        # A conversation is cut where it exceeds the window, unless positions are learned.
        is_cut = talk is not None and self._model.config.rotary is not None
        told = 0 if talk is None or is_cut else len(talk.told.token_ids)
        room = self._model.window_tokens - told - count
        if new_tokens_max is None:
            new_tokens_max = min(self._limits.new_tokens, max(1, room))
        if new_tokens_max > room and not is_cut:
            said = f"{told} tokens of the conversation, " if told else ""
            raise _too_long(
                f"{said}{count} prompt tokens and {new_tokens_max} new ones exceed the window of "
                f"{self._model.window_tokens}",
                parameter,
            )
        return Prompt(token_ids=token_ids, new_tokens_max=new_tokens_max, conversation=talk)

    def _check_length(self, count: int, parameter: str) -> None:
        limit = self._limits.prompt_tokens
        if not count:
            raise ApiError(f"{parameter} has no tokens", parameter=parameter)
        if count > limit:
            raise _too_long(f"{count} prompt tokens exceed the limit of {limit}", parameter)


def _token_count(part: PromptPart, entries: Mapping[str, Entry]) -> int:
    if isinstance(part, EntryName):
        return len(entries[part.entry_id].token_ids)
    return len(part)


def _conversation(namespace: Namespace, name: str | None) -> ContinuedConversation | None:
    if name is None:
        return None
    if name.endswith(NAME_SUFFIX):
        raise ApiError(f"conversation must not end with {NAME_SUFFIX}", parameter="conversation")
    return namespace.conversation(name)


def _too_long(message: str, parameter: str) -> ApiError:
    return ApiError(message, parameter=parameter, code="context_length_exceeded")


def _mark() -> str:
    return secrets.token_hex(MARK_BYTES)
