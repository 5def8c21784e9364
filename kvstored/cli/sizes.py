"""Sizes on the command line, written as in the configuration."""

from pydantic import TypeAdapter, ValidationError

from kvstored.cli.errors import CommandError
from kvstored.config_values import Size

_SIZE: TypeAdapter[int] = TypeAdapter(Size)


def parsed_bytes(option: str, text: str, *, wanted: str) -> int:
    """The bytes of a size; raises CommandError, which says what is ``wanted`` of the option."""
    try:
        return int(_SIZE.validate_python(text))
    except ValidationError as error:
        raise CommandError(f"{option} is {text!r}; write {wanted}") from error
