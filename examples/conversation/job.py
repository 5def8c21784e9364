"""The main job: three turns by three processes, with the daemon killed in between.

Turn 1 reads the document and saves its states. Turn 2, a new process, restores the
history. Then the daemon is killed and started again, and turn 3, another process,
restores from the devices. Every turn is also taken without any store, to compare
tokens and time. Then a conversation of another model outgrows its window. In the end turn 3 is
taken once more on limited devices, from both ends.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.document import document_tokens, random_model
from benchmarks.kit.daemon_process import DaemonOptions, DaemonProcess
from engine_adapters.restore import Mode
from engine_adapters.runner.model.tokenizer import Tokenizer
from examples.conversation.both_ends import (
    BothEnds,
    LastTurn,
    limited_daemon,
    restore_from_both_ends,
    store_for_cake,
)
from examples.conversation.linked import LinkedRequest, ask_documents
from examples.conversation.overflow import Overflow, talk_past_window
from examples.conversation.repeated import Repeated, repeat
from examples.conversation.runner_process import StoreUse, TurnResult, calibrate, run_turn
from examples.conversation.script import SAYINGS
from kvstored_client import RAW

DRAM_BYTES = 512 * 1024 * 1024
ARENA_BYTES_MAX = 1024 * 1024 * 1024
QUESTIONS = (
    "\n\nQuestion: what does the first document promise, and to whom?\nAnswer:",
    "\n\nQuestion: which of these promises would you test first, and how?\nAnswer:",
    "\n\nQuestion: now summarise the last document in one sentence.\nAnswer:",
)
"""What the user says in each turn; the answers are generated in between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """What is run, and where. ``kv_heads`` below 8 makes the model GQA.

    ``mode`` is what is stored of each layer; some modes are planned by a profile, which
    the job measures first. ``codec`` names how states are stored; the job wants a lossless one.
    The comparison of both ends is repeated ``run_count`` times, with ``is_disturbed`` beside other
    work.
    """

    folder: Path
    model: Path | None = None
    kv_heads: int = 8
    document_tokens: int = 5000
    new_tokens: int = 64
    device_bytes: int
    mode: Mode = Mode.AUTO
    codec: str = RAW
    run_count: int = 0
    is_disturbed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn, taken with the store and without it."""

    number: int
    history_tokens: int
    stored: TurnResult
    recomputed: TurnResult

    @property
    def tokens_equal(self) -> bool:
        """Whether both ways generated the same tokens."""
        return self.stored.generated_ids == self.recomputed.generated_ids


Report = Callable[[str], None]
"""Hears what is being done now."""

STEPS = 14 + len(SAYINGS)
"""How often ``run_job`` reports: the steps of a progress display."""
STEPS_OF_RUN = 3
"""Besides, for each time that the comparison of both ends is repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """All turns, the last one from both ends, and that repeated if it was wanted.

    ``overflow`` is the other conversation, ``linked`` the request of four documents.
    """

    turns: list[Turn]
    overflow: Overflow
    linked: LinkedRequest
    both_ends: BothEnds
    repeated: Repeated | None


def run_job(options: JobOptions, report: Report) -> JobResult:
    """Runs the whole job; the daemon is stopped in every case."""
    report("writing the model and its tokenizer")
    model = options.model or random_model(options.folder, kv_heads=options.kv_heads)
    report(f"formatting two devices of {options.device_bytes / 2**30:.1f} GiB each")
    daemon = _daemon_options(options)
    use = StoreUse(
        socket=daemon.socket,
        mode=Mode(options.mode),
        codec=options.codec,
        profile=options.folder / "profile.json",
    )
    with DaemonProcess(daemon) as process:
        turns = []
        token_file = options.folder / "conversation.json"
        conversation = document_tokens(model, options.document_tokens)
        history_tokens = 0
        report("measuring what restoring a layer costs here")
        calibrate(model=model, store=use)
        for number, question in enumerate(QUESTIONS, start=1):
            if number == len(QUESTIONS):
                report("killing the daemon with SIGKILL and starting it again")
                process.kill()
                process.start()
            conversation += Tokenizer.from_directory(model).encode(question, is_continuation=True)
            token_file.write_text(json.dumps(conversation))
            turn = take_turn(
                options,
                report,
                number=number,
                history_tokens=history_tokens,
                model=model,
                token_file=token_file,
                store=use,
            )
            turns.append(turn)
            conversation += turn.recomputed.generated_ids
            history_tokens = len(conversation)
        last = LastTurn(
            model=model,
            token_file=token_file,
            token_output=options.folder / "answer.json",
            new_tokens=options.new_tokens,
            computed=turns[-1].recomputed,
        )
        report("storing the last turn as mode cake wants it")
        schedule = store_for_cake(last, use).schedule
        overflow = talk_past_window(process, report)
        linked = ask_documents(process, report)
    limited = limited_daemon(last, use, daemon, schedule)
    both_ends = restore_from_both_ends(last, use, limited, report)
    repeated = None
    if options.run_count:
        repeated = repeat(
            last,
            use,
            limited,
            run_count=options.run_count,
            is_disturbed=options.is_disturbed,
            report=report,
        )
    return JobResult(
        turns=turns, overflow=overflow, linked=linked, both_ends=both_ends, repeated=repeated
    )


def _daemon_options(options: JobOptions) -> DaemonOptions:
    """Of the daemon of the job, whose folder is new."""
    store = options.folder / "store"
    store.mkdir(parents=True)
    return DaemonOptions(
        folder=store,
        device_bytes=options.device_bytes,
        dram_bytes=DRAM_BYTES,
        arena_bytes_max=ARENA_BYTES_MAX,
    )


def take_turn(
    options: JobOptions,
    report: Report,
    *,
    number: int,
    history_tokens: int,
    model: Path,
    token_file: Path,
    store: StoreUse,
) -> Turn:
    """Takes one turn in two processes, first without the store."""
    results = []
    for way, use in (("without a store", None), ("with the store", store)):
        report(f"turn {number}, {way}")
        results.append(
            run_turn(
                model=model,
                token_file=token_file,
                token_output=options.folder / "answer.json",
                new_tokens=options.new_tokens,
                store=use,
            )
        )
    return Turn(
        number=number, history_tokens=history_tokens, recomputed=results[0], stored=results[1]
    )
