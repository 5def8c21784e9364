"""What the sections of the configuration are made of: sizes, shares, accounts."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ByteSize, ConfigDict, Field

_SIZE = re.compile(r"\s*\d+(\.\d+)?\s*([kmgtpe]?i?b?)\s*", re.IGNORECASE)


def _whole_size(value: object) -> object:
    """Refuses text that only begins like a size, and what is below 0."""
    text = str(value) if isinstance(value, int) else value
    if isinstance(text, str) and not _SIZE.fullmatch(text):
        raise ValueError(f"{value!r} is no size; write a number of bytes or a size such as 2GiB")
    return value


Size = Annotated[ByteSize, BeforeValidator(_whole_size)]
Bytes = Annotated[Size, Field(gt=0)]
Share = Annotated[float, Field(gt=0, lt=1)]
Account = Annotated[str | int, Field(union_mode="left_to_right")]
"""A Unix user or group: its name, or its number."""


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """A host's name or address, and a port."""

    host: str
    port: int


def address_of(text: str) -> TcpAddress | Path:
    """``HOST:PORT``, or the path of a Unix socket, which has a slash in it. Raises ValueError."""
    if "/" in text:
        return Path(text)
    problem = ValueError(
        f"{text!r} is neither HOST:PORT, such as 127.0.0.1:9470, nor the path of a Unix socket, "
        "such as ./metrics.sock"
    )
    try:
        parts = urlsplit(f"//{text}")
        port = parts.port
    except ValueError:
        raise problem from None
    if not parts.hostname or not port or parts.netloc != text:
        raise problem
    return TcpAddress(parts.hostname, port)


class Section(BaseModel):
    """A table of the configuration file; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)
