"""A request that names entries in its prompt, which are linked instead of computed. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from reprlib import repr as repr_of

from engine_adapters.link.method import LinkMethod
from engine_adapters.link.parts import EntryPart, NewPart, Part
from engine_adapters.link.plan import LinkPlan, plan_link

ENTRIES, METHOD = "entries", "link"
"""Keys of a request's ``kv_transfer_params``."""
DEFAULT_METHOD = "attnlink-16"
NAME_LENGTH_MAX = 40
ENTRIES_MAX = 1024
"""Each is a question to the store."""


class LinkRequestError(ValueError):
    """Entries that cannot be linked; one sentence that names what is wrong."""


@dataclass(frozen=True, slots=True)
class LinkRequest:
    """The positions of each entry's tokens in the prompt, ascending and apart, and the method."""

    entries: tuple[range, ...]
    method: LinkMethod

    def plan(self, prompt_tokens: int) -> LinkPlan:
        """Which tokens of a prompt of so many are computed."""
        parts: list[Part] = []
        first = 0
        for number, entry in enumerate(self.entries):
            parts += [NewPart(entry.start - first), EntryPart(str(number), len(entry))]
            first = entry.stop
        return plan_link([*parts, NewPart(prompt_tokens - first)], self.method)


def link_request(parameters: object, *, prompt_tokens: int) -> LinkRequest | None:
    """What ``kv_transfer_params`` say of entries; None where they name none.

    ``{"entries": [[first, stop], ...], "link": "attnlink-16"}``: tokens ``first`` to ``stop - 1``
    of the prompt are an entry. Raises LinkRequestError.
    """
    if not isinstance(parameters, Mapping) or ENTRIES not in parameters:
        return None
    listed = _list(parameters[ENTRIES])
    if len(listed) > ENTRIES_MAX:
        raise LinkRequestError(f"it names {len(listed)} entries; at most {ENTRIES_MAX} are linked")
    entries = tuple(map(_entry, listed))
    if any(before.stop > after.start for before, after in pairwise(entries)):
        raise LinkRequestError("its entries overlap, or do not stand in the order of the prompt")
    if entries and entries[-1].stop > prompt_tokens:
        raise LinkRequestError(
            f"its last entry ends at token {entries[-1].stop} of a prompt of {prompt_tokens}"
        )
    return LinkRequest(entries, _method(parameters.get(METHOD, DEFAULT_METHOD)))


def _list(value: object) -> Sequence[object]:
    if not isinstance(value, list | tuple):
        raise LinkRequestError(f"entries is {repr_of(value)}; it must be a list of [first, stop]")
    return value


def _entry(value: object) -> range:
    match value:
        case [int(first), int(stop)] if 0 <= first < stop:
            return range(first, stop)
    raise LinkRequestError(
        f"an entry is {repr_of(value)}; it must be [first, stop], the first of its tokens and the "
        "one after its last"
    )


def _method(name: object) -> LinkMethod:
    try:
        method = LinkMethod.named(str(name)[:NAME_LENGTH_MAX])
    except ValueError as error:
        raise LinkRequestError(str(error)) from error
    if method.deviating_percent or method.ranked_k:
        raise LinkRequestError(
            f"the method {method} chooses tokens while it computes, which vLLM cannot; take naive, "
            "full or attnlink-k"
        )
    return method
