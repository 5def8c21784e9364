"""The body of ``POST /v1/context_caches``. Pure."""

from dataclasses import dataclass

from engine_adapters.link.entry import TTL_S_MAX
from engine_adapters.server.protocol.chat_request import Message, read_messages
from engine_adapters.server.protocol.fields import Fields


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRequest:
    """Either a ``text`` or ``messages``; it lasts for ``ttl_s``, or until somebody deletes it."""

    model: str
    text: str | None
    messages: tuple[Message, ...]
    ttl_s: int | None


def read_cache_request(body: bytes) -> CacheRequest:
    """Raises ApiError, which names the key at fault."""
    fields = Fields.of_body(body)
    model = fields.required_text("model")
    text = fields.text("text")
    ttl_s = fields.integer("ttl_s", least=1, most=TTL_S_MAX)
    messages: tuple[Message, ...] = ()
    if text is None:
        messages = read_messages(fields)
    elif fields.value("messages") is not None:
        raise fields.refuse("messages", "left out beside text")
    fields.finish()
    return CacheRequest(model=model, text=text, messages=messages, ttl_s=ttl_s)
