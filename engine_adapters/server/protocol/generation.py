"""What every request for text may say about the text. Pure."""

from dataclasses import dataclass

from engine_adapters.link.method import LinkMethod
from engine_adapters.server.protocol.fields import Fields
from engine_adapters.server.protocol.limits import Limits

SEED_MAX = 2**63 - 1
TEMPERATURE_MAX = 2.0
NAME_BYTES = 128
"""Of a conversation, in UTF-8: the store's sequences have names of 200 bytes at most, and these get
something before and after them."""
DEFAULT_METHOD = "attnlink-16"


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """``new_tokens_max`` None: as many as there is room for; ``seed`` None: any.

    ``conversation`` is the name of the one that the prompt continues, ``method`` that by which
    entries are linked into it. ``reports_usage`` adds it to the end of a stream.
    """

    model: str
    new_tokens_max: int | None
    temperature: float
    top_p: float
    seed: int | None
    stops: tuple[str, ...]
    is_streamed: bool
    reports_usage: bool
    conversation: str | None
    method: str


def read_generation(fields: Fields, limits: Limits) -> Generation:
    """Reads the keys that all requests for text have; raises ApiError."""
    fields.integer("n", least=1, most=1)
    top_p = fields.number("top_p", most=1.0, default=1.0)
    if top_p == 0:
        raise fields.refuse("top_p", "a number above 0, and 1 at most")
    is_streamed = fields.flag("stream")
    return Generation(
        model=fields.required_text("model"),
        new_tokens_max=_new_tokens_max(fields, limits),
        temperature=fields.number("temperature", most=TEMPERATURE_MAX, default=1.0),
        top_p=top_p,
        seed=fields.integer("seed", least=-SEED_MAX, most=SEED_MAX),
        stops=_stops(fields, limits),
        is_streamed=is_streamed,
        reports_usage=_reports_usage(fields, is_streamed=is_streamed),
        conversation=_conversation(fields),
        method=_method(fields),
    )


def _new_tokens_max(fields: Fields, limits: Limits) -> int | None:
    names = ("max_tokens", "max_completion_tokens")
    found = [fields.integer(name, least=1, most=limits.new_tokens) for name in names]
    given = [count for count in found if count is not None]
    if len(given) > 1:
        raise fields.refuse("max_tokens", "left out beside max_completion_tokens")
    return given[0] if given else None


def _stops(fields: Fields, limits: Limits) -> tuple[str, ...]:
    value = fields.value("stop")
    if value is None:
        return ()
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or len(stops) > limits.stops:
        raise fields.refuse("stop", f"a string, or a list of at most {limits.stops} strings")
    for stop in stops:
        if not isinstance(stop, str) or not 1 <= len(stop) <= limits.stop_characters:
            wanted = f"made of strings of 1 to {limits.stop_characters} characters"
            raise fields.refuse("stop", wanted)
    return tuple(stops)


def _reports_usage(fields: Fields, *, is_streamed: bool) -> bool:
    value = fields.value("stream_options")
    if value is None:
        return False
    if not is_streamed:
        raise fields.refuse("stream_options", "left out without stream")
    options = Fields(value, path="stream_options")
    reports_usage = options.flag("include_usage")
    options.finish()
    return reports_usage


def _conversation(fields: Fields) -> str | None:
    name = fields.text("conversation")
    if name is not None and len(name.encode(errors="replace")) > NAME_BYTES:
        raise fields.refuse("conversation", f"a name of at most {NAME_BYTES} bytes")
    return name


def _method(fields: Fields) -> str:
    name = fields.text("link_method") or DEFAULT_METHOD
    try:
        LinkMethod.named(name)
    except ValueError as error:
        wanted = "naive, full, attnlink-K with an even K, or cacheblend-R with R from 1 to 100"
        raise fields.refuse("link_method", wanted) from error
    return name
