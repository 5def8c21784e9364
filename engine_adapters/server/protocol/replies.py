"""The objects that clients get, as OpenAI has them. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Reply = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of an answer; ``restored_tokens`` of the prompt came from the store."""

    prompt_tokens: int
    new_tokens: int
    restored_tokens: int

    def reply(self) -> Reply:
        """As OpenAI has it."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.new_tokens,
            "total_tokens": self.prompt_tokens + self.new_tokens,
            "prompt_tokens_details": {"cached_tokens": self.restored_tokens},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerHead:
    """What all objects of one answer begin with; ``created_s`` since 1970."""

    answer_id: str
    model: str
    created_s: int
    is_chat: bool

    def whole(self, text: str, reason: str, usage: Usage) -> Reply:
        """An answer that is not streamed."""
        said: Reply
        if self.is_chat:
            said = {"message": {"role": "assistant", "content": text}}
        else:
            said = {"text": text}
        kind = "chat.completion" if self.is_chat else "text_completion"
        return self._object(kind, [self._choice(said, reason)], usage=usage.reply())

    def first(self) -> Reply | None:
        """What a stream begins with, before any text; None where that is nothing."""
        if not self.is_chat:
            return None
        return self._part([self._choice({"delta": {"role": "assistant", "content": ""}}, None)])

    def piece(self, text: str) -> Reply:
        """Some text of a stream."""
        said: Reply = {"delta": {"content": text}} if self.is_chat else {"text": text}
        return self._part([self._choice(said, None)])

    def last(self, reason: str) -> Reply:
        """The end of the text of a stream."""
        said: Reply = {"delta": {}} if self.is_chat else {"text": ""}
        return self._part([self._choice(said, reason)])

    def usage(self, usage: Usage) -> Reply:
        """The end of a stream whose client asked for it."""
        return self._part([], usage=usage.reply())

    def _part(self, choices: Sequence[Reply], **more: object) -> Reply:
        kind = "chat.completion.chunk" if self.is_chat else "text_completion"
        return self._object(kind, choices, **more)

    def _choice(self, said: Reply, reason: str | None) -> Reply:
        return {"index": 0, **said, "logprobs": None, "finish_reason": reason}

    def _object(self, kind: str, choices: Sequence[Reply], **more: object) -> Reply:
        return {
            "id": self.answer_id,
            "object": kind,
            "created": self.created_s,
            "model": self.model,
            "choices": list(choices),
            **more,
        }


def listed(values: Sequence[Reply]) -> Reply:
    """A list of objects."""
    return {"object": "list", "data": list(values)}


def model_reply(name: str, created_s: int) -> Reply:
    """A model of this server."""
    return {"id": name, "object": "model", "created": created_s, "owned_by": "kvstored"}


def cache_reply(entry_id: str, *, token_count: int, created_s: int, expires_s: int | None) -> Reply:
    """A context cache; times since 1970, None for one that stays until it is deleted."""
    return {
        "id": entry_id,
        "object": "context_cache",
        "created": created_s,
        "expires_at": expires_s,
        "tokens": token_count,
    }


def deleted_reply(entry_id: str) -> Reply:
    """A context cache that there is no more."""
    return {"id": entry_id, "object": "context_cache.deleted", "deleted": True}


def deleted_conversation_reply(name: str) -> Reply:
    """A conversation that there is no more."""
    return {"id": name, "object": "conversation.deleted", "deleted": True}
