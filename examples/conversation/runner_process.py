"""One turn in a process of its own: ``python -m engine_adapters.runner``."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


class RunnerFailedError(RuntimeError):
    """The runner process ended with an error; the message is what it said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """What a runner process reported of its turn."""

    restored_tokens: int
    computed_tokens: int
    device_bytes: int
    dram_bytes: int
    ttft_s: float
    generated_ids: tuple[int, ...]
    dropped_chunks: int


def run_turn(
    *,
    model: Path,
    token_file: Path,
    token_output: Path,
    new_tokens: int,
    socket: Path | None,
) -> TurnResult:
    """Runs one turn on the conversation in ``token_file``; writes it, grown, to ``token_output``.

    Without ``socket`` the turn uses no store. Raises RunnerFailedError.
    """
    store = ["--no-store"] if socket is None else ["--socket", str(socket)]
    process = subprocess.run(
        [
            *(sys.executable, "-m", "engine_adapters.runner", "--json"),
            *("--model", str(model)),
            *("--token-file", str(token_file)),
            *("--token-output", str(token_output)),
            *("--max-new-tokens", str(new_tokens)),
            *store,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode != 0:
        raise RunnerFailedError(process.stderr.strip())
    report = json.loads(process.stdout)
    return TurnResult(
        restored_tokens=report["restored_tokens"],
        computed_tokens=report["computed_tokens"],
        device_bytes=report["device_bytes"],
        dram_bytes=report["dram_bytes"],
        ttft_s=report["ttft_s"],
        generated_ids=tuple(report["generated_ids"]),
        dropped_chunks=report["dropped_chunks"],
    )
