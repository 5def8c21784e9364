"""The keys of a JSON object, each read once; what nobody read is an error. Pure."""

import json
from collections.abc import Mapping

from engine_adapters.server.protocol.api_error import ApiError


class Fields:
    """Raises ApiError, which names the key, for every value of another type or out of range.

    A key whose value is null counts as left out, as with OpenAI.
    """

    def __init__(self, values: object, *, path: str = "") -> None:
        """``path`` is where the object lies in the request; empty for the request itself."""
        if not isinstance(values, Mapping):
            named = path or "the body"
            raise ApiError(f"{named} must be a JSON object", parameter=path or None)
        self._values = dict(values)
        self._path = path
        self._unread = {name for name, value in self._values.items() if value is not None}

    @classmethod
    def of_body(cls, body: bytes) -> "Fields":
        """The object of a request's body."""
        try:
            return cls(json.loads(body, parse_constant=_refuse))
        # Deeply nested arrays end the parser with a RecursionError.
        except (ValueError, RecursionError) as error:
            raise ApiError(f"the body is no JSON: {error}") from error

    def path_of(self, name: str) -> str:
        """How messages name a key."""
        return f"{self._path}.{name}" if self._path else name

    def refuse(self, name: str, wanted: str) -> ApiError:
        """The error for a key whose value is not what is wanted."""
        path = self.path_of(name)
        return ApiError(f"{path} must be {wanted}", parameter=path)

    def value(self, name: str) -> object:
        """Of any type; None where it is left out. Its strings have no half a surrogate pair."""
        self._unread.discard(name)
        value = self._values.get(name)
        if not _is_text(value):
            raise self.refuse(name, "text that can be written as UTF-8")
        return value

    def text(self, name: str) -> str | None:
        """A string of at least one character."""
        value = self.value(name)
        if value is not None and (not isinstance(value, str) or not value):
            raise self.refuse(name, "a string that is not empty")
        return value

    def required_text(self, name: str) -> str:
        """The same where it must not be left out."""
        value = self.text(name)
        if value is None:
            raise self.refuse(name, "given")
        return value

    def flag(self, name: str) -> bool:
        """False where it is left out."""
        value = self.value(name)
        if value is not None and not isinstance(value, bool):
            raise self.refuse(name, "true or false")
        return bool(value)

    def integer(self, name: str, *, least: int, most: int) -> int | None:
        """A whole number between both, these included."""
        value = self.value(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.refuse(name, f"a whole number from {least} to {most}")
        return value

    def number(self, name: str, *, most: float, default: float) -> float:
        """A number from 0 on."""
        value = self.value(name)
        if value is None:
            return default
        # True and False are integers of Python.
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most:
            return float(value)
        raise self.refuse(name, f"a number from 0 to {most:g}")

    def finish(self) -> None:
        """All keys that there may be are read."""
        for name in sorted(self._unread):
            path = self.path_of(name)
            raise ApiError(
                f"this server does not know {path}; leave it out",
                parameter=path,
                code="unknown_parameter",
            )


def _is_text(value: object) -> bool:
    """JSON can name half of a surrogate pair, as programs do that cut a text within one."""
    strings = value if isinstance(value, list) else [value]
    try:
        for one in strings:
            if isinstance(one, str):
                one.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse(name: str) -> float:
    """JSON has no such numbers, though Python reads them."""
    raise ValueError(f"{name} is no number of JSON")
