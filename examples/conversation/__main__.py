"""``make demo``: the main job with a progress display and a table at its end."""

import argparse
import shutil
import signal
import sys
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.benchmark import BenchmarkError
from engine_adapters.processor import avoid_broken_tiles
from engine_adapters.restore import Mode
from engine_adapters.runner.model.errors import ModelError
from examples.conversation import both_ends, linked, overflow, repeated
from examples.conversation.both_ends import BothEnds
from examples.conversation.job import (
    STEPS,
    STEPS_OF_RUN,
    JobOptions,
    JobResult,
    Turn,
    run_job,
)
from examples.conversation.linked_display import make_documents, make_methods_table
from examples.conversation.overflow_display import make_text, make_window_table
from examples.conversation.result_file import to_json
from examples.conversation.runner_process import RunnerFailedError
from kvstored.evidence import gather_provenance, started_as
from kvstored_client import RAW

GIB = 1024**3
LOSSLESS = (RAW, "zstd")


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.conversation",
        description="A conversation over a long document, restored from kvstored.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--folder", type=Path, default=Path("var/demo"), help="where all files go")
    parser.add_argument("--model", type=Path, help="a Hugging Face Llama directory to use instead")
    parser.add_argument(
        "--kv-heads", type=int, default=8, choices=[1, 2, 4, 8], help="8 is MHA, fewer is GQA"
    )
    parser.add_argument(
        "--mode",
        choices=[mode.value for mode in Mode],
        default=Mode.AUTO.value,
        help="what is stored of each layer; auto chooses by what was measured here",
    )
    parser.add_argument(
        "--codec",
        choices=LOSSLESS,
        default=RAW,
        help="zstd stores fewer bytes; tokens stay the same",
    )
    parser.add_argument("--document-tokens", type=int, default=5000)
    parser.add_argument("--new-tokens", type=int, default=64, help="generated in each turn")
    parser.add_argument("--device-gib", type=float, default=2.0, help="size of each of 2 devices")
    parser.add_argument(
        "--runs",
        type=int,
        default=0,
        metavar="N",
        help="repeat the comparison of both ends so often and print the worst and the median",
    )
    parser.add_argument(
        "--disturbed",
        action="store_true",
        help="repeat it beside a process that keeps one core busy half of the time",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured there")
    return parser


def make_table(turns: list[Turn]) -> Table:
    """One row per turn."""
    table = Table(
        title="Each turn is a new runner process; before turn 3 the daemon was killed.",
        caption="history, restored, computed: tokens; NVMe, DRAM: MB; TTFT, no store: ms",
        box=SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    names = ("turn", "history", "restored", "computed", "NVMe", "DRAM")
    for name in (*names, "TTFT", "no store", "gain", "equal"):
        table.add_column(name, justify="right")
    for turn in turns:
        stored = turn.stored
        is_restored = stored.restored_tokens > 0
        table.add_row(
            str(turn.number),
            str(turn.history_tokens),
            str(stored.restored_tokens),
            str(stored.computed_tokens),
            f"{stored.device_bytes / 1e6:.1f}",
            f"{stored.dram_bytes / 1e6:.1f}",
            f"{stored.ttft_s * 1e3:.0f}",
            f"{turn.recomputed.ttft_s * 1e3:.0f}",
            f"{turn.recomputed.ttft_s / stored.ttft_s:.1f}x" if is_restored else "-",
            "yes" if turn.tokens_equal else "NO",
        )
    return table


def make_meeting_table(result: BothEnds) -> Table:
    """One row for each way to regain the history of the last turn."""
    table = Table(
        title=f"Turn 3 on devices limited to {result.bytes_per_s / 1e6:.0f} MB/s together.",
        caption="loaded, computed: tokens of the history; TTFT: ms",
        box=SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    for name in ("restored", "loaded", "computed", "meeting at", "TTFT"):
        table.add_column(name, justify="right")
    meeting = "-" if result.both.meeting_token is None else f"token {result.both.meeting_token}"
    for name, turn, where in (
        ("from both ends", result.both, meeting),
        ("loaded alone", result.loaded, "-"),
        ("computed alone", result.computed, "-"),
    ):
        table.add_row(
            name,
            str(turn.restored_tokens),
            str(result.history_tokens - turn.restored_tokens),
            where,
            f"{turn.ttft_s * 1e3:.0f}",
        )
    return table


def faults(turns: list[Turn]) -> list[str]:
    """What is wrong with turns, one sentence each; empty when they did what they should."""
    found = [
        f"turn {turn.number} generated other tokens than without a store"
        for turn in turns
        if not turn.tokens_equal
    ]
    found += [
        f"{turn.stored.dropped_tokens} tokens of turn {turn.number} could not be saved"
        for turn in turns
        if turn.stored.dropped_tokens
    ]
    found += [
        f"turn {turn.number} restored nothing"
        for turn in turns[1:]
        if turn.stored.restored_tokens == 0 and turn.stored.can_restore
    ]
    return found


def show(console: Console, result: JobResult, *, mode: str) -> list[str]:
    """Prints all tables, then what is wrong, one sentence each, which it returns."""
    turns = result.turns
    console.print(make_table(turns))
    console.print(
        f"Mode {mode}: {turns[-1].stored.schedule} "
        "(layers from H hidden states, KV keys and values, RE recomputed tokens)."
    )
    console.print(make_meeting_table(result.both_ends))
    console.print(make_window_table(result.overflow))
    console.print(make_text(result.overflow))
    console.print(make_documents(result.linked))
    console.print(make_methods_table(result.linked))
    problems = faults(turns) + both_ends.faults(result.both_ends)
    problems += overflow.faults(result.overflow) + linked.faults(result.linked)
    if result.repeated is not None:
        console.print(result.repeated.sentence())
        problems += repeated.faults(result.repeated)
    for problem in problems:
        console.print(f"[red]{problem}[/red]")
    if not problems and turns[-1].stored.can_restore:
        console.print(
            "The states of every turn were stored while it ran. Turns 2 and 3 restored their "
            "history instead of computing it, and generated the same tokens as without a store. "
            "The other conversation went on when its window had overflowed. The last request "
            "linked four documents that were computed apart, in another order."
        )
    return problems


def main() -> int:
    """Exit status 0; 1 when tokens differ or an end did nothing; 2 when it cannot run."""
    arguments = make_parser().parse_args()
    # A signal that ends it ends its daemon with it: by the way that leads out of all blocks.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    folder = arguments.folder.resolve()
    options = JobOptions(
        folder=folder,
        model=arguments.model,
        kv_heads=arguments.kv_heads,
        document_tokens=arguments.document_tokens,
        new_tokens=arguments.new_tokens,
        device_bytes=int(arguments.device_gib * GIB),
        mode=arguments.mode,
        codec=arguments.codec,
        run_count=max(arguments.runs, int(arguments.disturbed)),
        is_disturbed=arguments.disturbed,
    )
    avoid_broken_tiles()
    # As the run begins.
    provenance = gather_provenance(started_as())
    console = Console()
    shutil.rmtree(folder / "store", ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    try:
        with Progress(*columns, console=console) as progress:
            task = progress.add_task("", total=STEPS + STEPS_OF_RUN * options.run_count)

            def report(what: str) -> None:
                progress.update(task, advance=1, description=what)

            result = run_job(options, report)
    except (BenchmarkError, ModelError, RunnerFailedError) as error:
        console.print(f"[red]the demo could not run:[/red] {error}")
        return 2
    if arguments.json is not None:
        arguments.json.write_text(to_json(result, provenance))
    problems = show(console, result, mode=options.mode)
    console.print(
        f"Model, devices, index and daemon log are in {arguments.folder}; remove it when done."
    )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
