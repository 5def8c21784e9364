"""The body of ``/v1/completions``. Pure."""

from dataclasses import dataclass, replace

from engine_adapters.server.protocol.fields import Fields
from engine_adapters.server.protocol.generation import Generation, read_generation
from engine_adapters.server.protocol.limits import Limits

NEW_TOKENS = 16
"""OpenAI's default for this request."""


@dataclass(frozen=True, slots=True)
class PromptRequest:
    """``prompt`` is a text, or token ids."""

    prompt: str | tuple[int, ...]
    generation: Generation


def read_prompt_request(body: bytes, limits: Limits) -> PromptRequest:
    """Raises ApiError, which names the key at fault."""
    fields = Fields.of_body(body)
    prompt = _prompt(fields)
    generation = read_generation(fields, limits)
    fields.finish()
    if generation.new_tokens_max is None:
        new_tokens_max = min(NEW_TOKENS, limits.new_tokens)
        generation = replace(generation, new_tokens_max=new_tokens_max)
    return PromptRequest(prompt, generation)


def _prompt(fields: Fields) -> str | tuple[int, ...]:
    value = fields.value("prompt")
    if isinstance(value, str) and value:
        return value
    if isinstance(value, list) and value and all(type(token_id) is int for token_id in value):
        return tuple(value)
    raise fields.refuse("prompt", "one text or one list of token ids, and not empty")
