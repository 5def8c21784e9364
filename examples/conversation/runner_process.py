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
    """What a runner process reported of its turn.

    ``schedule`` is empty without a store. ``meeting_token`` is where computing from the front
    met what was loaded from the back; None where it did not.
    """

    restored_tokens: int
    computed_tokens: int
    device_bytes: int
    dram_bytes: int
    ttft_s: float
    generated_ids: tuple[int, ...]
    dropped_tokens: int
    schedule: str = ""
    meeting_token: int | None = None

    @property
    def can_restore(self) -> bool:
        """False when every layer is recomputed, so that nothing is stored."""
        return any(not part.endswith(" RE") for part in self.schedule.split(" + "))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreUse:
    """Which daemon a turn uses, and how.

    ``least_wait_s`` is waited for it in any case; None: as long as the runner thinks fit, which
    computes what comes too slowly.
    """

    socket: Path
    mode: str
    codec: str
    profile: Path
    saves: bool = True
    least_wait_s: float | None = None


def calibrate(*, model: Path, store: StoreUse) -> None:
    """Measures the machine for ``model`` and writes the profile; raises RunnerFailedError."""
    run_process(
        "calibrate",
        str(model),
        "--quick",
        *("--socket", str(store.socket), "--codec", store.codec),
        *("--profile", str(store.profile)),
    )


def run_turn(
    *,
    model: Path,
    token_file: Path,
    token_output: Path,
    new_tokens: int,
    store: StoreUse | None,
) -> TurnResult:
    """Runs one turn on the conversation in ``token_file``; writes it, grown, to ``token_output``.

    Raises RunnerFailedError.
    """
    options = ["--no-store"]
    if store is not None:
        options = ["--socket", str(store.socket), "--mode", store.mode, "--codec", store.codec]
        if store.profile.exists():
            options += ["--profile", str(store.profile)]
        if not store.saves:
            options.append("--no-save")
        if store.least_wait_s is not None:
            options += ["--least-wait", str(store.least_wait_s)]
    output = run_process(
        "--json",
        *("--model", str(model)),
        *("--token-file", str(token_file)),
        *("--token-output", str(token_output)),
        *("--max-new-tokens", str(new_tokens)),
        *options,
    )
    report = json.loads(output)
    return TurnResult(
        restored_tokens=report["restored_tokens"],
        computed_tokens=report["computed_tokens"],
        device_bytes=report["device_bytes"],
        dram_bytes=report["dram_bytes"],
        ttft_s=report["ttft_s"],
        generated_ids=tuple(report["generated_ids"]),
        dropped_tokens=report["dropped_tokens"],
        schedule=report["schedule"] or "",
        meeting_token=report["meeting_token"],
    )


def run_process(*arguments: str) -> str:
    """What the runner wrote; raises RunnerFailedError."""
    process = subprocess.run(
        [sys.executable, "-m", "engine_adapters.runner", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode != 0:
        raise RunnerFailedError(process.stderr.strip())
    return process.stdout
