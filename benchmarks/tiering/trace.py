"""Requests of a real server: Mooncake's format, one JSON object in a line.

``timestamp`` in milliseconds, ``input_length`` and ``output_length`` in tokens, and ``hash_ids``,
one for each block of 512 tokens of the input: equal ids have equal tokens and the same before them.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from benchmarks.benchmark import BenchmarkError


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """``tokens`` of prompt and reply together; ``blocks`` of the prompt, each once."""

    arrival_s: float
    tokens: int
    blocks: tuple[int, ...]


def read_trace(path: Path) -> list[Request]:
    """All requests in the order of their arrival; raises BenchmarkError for another format."""
    try:
        lines = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
        requests = [
            Request(
                arrival_s=line["timestamp"] / 1000,
                tokens=line["input_length"] + line["output_length"],
                blocks=tuple(dict.fromkeys(line["hash_ids"])),
            )
            for line in lines
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BenchmarkError(f"{path} is no trace of requests: {error}") from None
    if not requests:
        raise BenchmarkError(f"{path} has no requests")
    return sorted(requests, key=lambda request: request.arrival_s)
