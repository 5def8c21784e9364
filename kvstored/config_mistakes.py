"""What is wrong with a configuration, one sentence for each mistake. Pure."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import get_args

from pydantic import BaseModel, ValidationError

ENV_PREFIX = "KVSTORED_"
ENV_NESTING = "__"

Place = tuple[int | str, ...]
"""Keys and numbers that lead to a value."""
_KINDS = frozenset({"int", "str"})
"""What the last part of a place may say where a value may be of either kind."""


def mistakes_of(
    error: ValidationError, model: type[BaseModel], path: Path, environment: Mapping[str, str]
) -> list[str]:
    """All mistakes, each with its key and remedy; names the variable where that gave the value.

    ``path`` is the file. Of a value that may be of several kinds the first one speaks.
    """
    seen: set[Place] = set()
    sentences = []
    for one in error.errors(include_url=False):
        place: Place = one["loc"]
        key = _known_part(place)
        if key not in seen:
            seen.add(key)
            sentences.append(_sentence(one["type"], one["msg"], place, model, path, environment))
    return sentences


def _sentence(
    kind: str,
    message: str,
    place: Place,
    model: type[BaseModel],
    path: Path,
    environment: Mapping[str, str],
) -> str:
    key = ".".join(map(str, place))
    variable = ENV_PREFIX + ENV_NESTING.join(map(str, place[:2])).upper()
    is_from_variable = bool(place) and variable in environment
    if kind == "extra_forbidden":
        hint = _hint(model, place)
        if is_from_variable:
            return f"the environment variable {variable} names no known key; unset it{hint}"
        return f"{path}: the key {key} is unknown; remove it or correct its spelling{hint}"
    if kind == "missing" and len(place) == 1:
        return f"{path}: the section [{key}] is missing; docs/install.md shows one"
    if kind == "missing":
        return f"{path}: the key {key} is missing; set it there or in {variable}"
    said = message.removeprefix("Value error, ")
    text = f"{key}: {said}" if key else said
    return f"{variable if is_from_variable else path}: {text}; correct it there"


def _hint(model: type[BaseModel], place: Place) -> str:
    """The known key that an unknown one is most like."""
    *folder, name = place
    close = get_close_matches(str(name), _model_at(model, folder).model_fields, n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def _known_part(place: Place) -> Place:
    """A place without what only says which kind of value was tried there."""
    while len(place) > 1 and place[-1] in _KINDS:
        place = place[:-1]
    return place


def _model_at(model: type[BaseModel], place: Iterable[int | str]) -> type[BaseModel]:
    """The table that lies at ``place``, which leads to one."""
    for part in place:
        if isinstance(part, str):
            annotation = model.model_fields[part].annotation
            # Of a list of tables each is of the same kind.
            table = next(iter(get_args(annotation)), annotation)
            assert isinstance(table, type)
            assert issubclass(table, BaseModel)
            model = table
    return model
