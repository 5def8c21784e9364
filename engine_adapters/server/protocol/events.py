"""The frames of a streamed answer (server-sent events). Pure."""

import json
from collections.abc import Mapping

DONE = b"data: [DONE]\n\n"
"""What OpenAI ends a stream with."""


def event(value: Mapping[str, object]) -> bytes:
    """One object, in ASCII; no line break in it ends the frame early."""
    text = json.dumps(value, separators=(",", ":"))
    return f"data: {text}\n\n".encode()
