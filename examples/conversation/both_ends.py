"""The last turn once more, computed from the front while it is loaded from the back (Cake).

The devices are limited to the bandwidth at which loading the history alone takes as long as
computing it alone, as on a machine whose storage is slow for its processor.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.kit.daemon_process import DaemonOptions, DaemonProcess
from engine_adapters.restore import Mode, Source
from engine_adapters.runner.states.state_format import CHUNK_TOKENS
from examples.conversation.runner_process import StoreUse, TurnResult, run_turn

MEETING_TOKENS_MIN = 1024
"""A shorter history may be there before the other end has begun."""

ALONE_WAIT_S = 600.0
"""Loading alone is to load everything, although computing would take as long."""

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BothEnds:
    """The turn from both ends, and each end alone at the same bandwidth of all devices."""

    bytes_per_s: float
    history_tokens: int
    both: TurnResult
    loaded: TurnResult
    computed: TurnResult

    @property
    def tokens_equal(self) -> bool:
        """Whether all three generated the same tokens."""
        return self.both.generated_ids == self.loaded.generated_ids == self.computed.generated_ids


def faults(result: BothEnds) -> list[str]:
    """What is wrong, one sentence each; empty when both ends did their part."""
    found = []
    if not result.tokens_equal:
        found.append("turn 3 from both ends, or loaded alone, generated other tokens")
    loaded = result.both.restored_tokens
    if result.history_tokens >= MEETING_TOKENS_MIN and not 0 < loaded < result.history_tokens:
        end = "loaded" if loaded == 0 else "computed"
        found.append(f"turn 3 from both ends {end} nothing of its history")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class LastTurn:
    """What the job has left: a conversation in ``token_file`` and how long computing it took."""

    model: Path
    token_file: Path
    token_output: Path
    new_tokens: int
    computed: TurnResult


def store_for_cake(turn: LastTurn, store: StoreUse) -> TurnResult:
    """Makes sure that the history is stored as mode cake wants it."""
    return run_last(turn, replace(store, mode=Mode.CAKE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limited:
    """A daemon on whose devices loading the history takes as long as computing it."""

    daemon: DaemonOptions
    source: Source
    layer_count: int
    history_tokens: int
    bytes_per_s: float


def limited_daemon(
    turn: LastTurn, store: StoreUse, daemon: DaemonOptions, schedule: str
) -> Limited:
    """The devices of ``daemon``, limited; ``schedule`` is how mode cake stores the history."""
    profile = json.loads(store.profile.read_text())
    source = Source.HIDDEN if schedule.endswith(" H") else Source.KV
    layer_count = int(schedule.split(maxsplit=1)[0])
    chunk_count = (len(json.loads(turn.token_file.read_text())) - 1) // CHUNK_TOKENS
    history_tokens = chunk_count * CHUNK_TOKENS
    token_bytes = layer_count * profile[f"{source}_bytes"]
    bytes_per_s = history_tokens * token_bytes / turn.computed.ttft_s
    return Limited(
        daemon=replace(
            daemon,
            is_formatted=True,
            device_bytes_per_s_max=max(1, int(bytes_per_s / daemon.device_count)),
            sockets=daemon.sockets.with_name(f"{daemon.sockets.name}-limited"),
        ),
        source=source,
        layer_count=layer_count,
        history_tokens=history_tokens,
        bytes_per_s=bytes_per_s,
    )


def restore_from_both_ends(
    turn: LastTurn, store: StoreUse, limited: Limited, report: Report
) -> BothEnds:
    """Takes the turn on a limited daemon, each way from devices only; nothing is saved."""
    results = []
    with DaemonProcess(limited.daemon) as process:
        ways: tuple[tuple[Mode, str, float | None], ...] = (
            (Mode.CAKE, "from both ends", None),
            (Mode(limited.source), "loaded alone", ALONE_WAIT_S),
        )
        for mode, what, least_wait_s in ways:
            process.restart()
            report(f"last turn at {limited.bytes_per_s / 1e6:.0f} MB/s, {what}")
            use = replace(
                store,
                mode=mode,
                socket=limited.daemon.socket,
                saves=False,
                least_wait_s=least_wait_s,
            )
            results.append(run_last(turn, use))
    return BothEnds(
        bytes_per_s=limited.bytes_per_s,
        history_tokens=limited.history_tokens,
        both=results[0],
        loaded=results[1],
        computed=turn.computed,
    )


def run_last(turn: LastTurn, store: StoreUse | None) -> TurnResult:
    """Takes the turn once, in a process of its own; raises RunnerFailedError."""
    return run_turn(
        model=turn.model,
        token_file=turn.token_file,
        token_output=turn.token_output,
        new_tokens=turn.new_tokens,
        store=store,
    )
