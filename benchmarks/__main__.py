"""``python -m benchmarks NAME [--quick] [--part PART] [--json FILE]``.

``results`` measures nothing: it lists what was measured, when and of which code.
"""

import argparse
import secrets
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.benchmark import BenchmarkError, Settings
from benchmarks.registry import MODULES, find_benchmark
from benchmarks.report import Report, Series
from benchmarks.results import list_results
from engine_adapters.processor import avoid_broken_tiles
from kvstored.evidence import Provenance, gather_provenance
from kvstored_client import StoreError

DEFAULT_FOLDER = Path("var/benchmarks")
TEXT_WIDTH = 120
"""Of what goes into a file instead of to a terminal."""
SIMULATE = "simulate"
"""The part of ``restore`` and ``cake`` that measures nothing."""
RESULTS = "results"
"""The name that lists results instead of measuring."""
_EXIT_FAILED = 1
_EXIT_SIGNAL = 128
"""What shells add to the number of the signal that ended a process."""
_SEED_BITS = 32


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one benchmark, or lists results; 0 when it measured what it promises.

    1 when it could not, 2 when what it measured cannot tell right from wrong.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    options = parser().parse_args(words)
    if (options.platform or options.model) and SIMULATE not in options.part:
        parser().error("--platform and --model say what to simulate; add --simulate")
    if options.part and options.name == RESULTS:
        parser().error("results has no parts")
    avoid_broken_tiles()
    console = Console(width=None if sys.stdout.isatty() else TEXT_WIDTH)
    # As the run begins: it may take hours.
    provenance = gather_provenance(shlex.join(["python", "-m", "benchmarks", *words]))
    if options.json is not None:
        # Found out now rather than after minutes of measuring.
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.touch()
    try:
        if options.name == RESULTS:
            list_results(console, options.json, provenance)
        else:
            _measure(options, console, provenance)
    except (BenchmarkError, StoreError) as error:
        sys.stderr.write(f"benchmark {options.name}: {error}\n")
        return error.exit_status if isinstance(error, BenchmarkError) else _EXIT_FAILED
    return 0


def _measure(options: argparse.Namespace, console: Console, provenance: Provenance) -> None:
    """Runs the benchmark that was asked for; raises BenchmarkError, StoreError."""
    seed = secrets.randbits(_SEED_BITS) if options.seed is None else options.seed
    console.print(f"seed: {seed}")
    benchmark = find_benchmark(options.name)
    partial = None if options.json is None else options.json.with_suffix(".partial")

    def report_of(series: Sequence[Series]) -> Report:
        return Report(
            benchmark=benchmark.name,
            quick=options.quick,
            provenance=provenance,
            series=tuple(series),
            parts=tuple(options.part),
        )

    def keep(series: Sequence[Series]) -> None:
        if partial is not None:
            partial.write_text(report_of(series).to_json())

    settings = Settings(
        quick=options.quick,
        folder=options.folder,
        seed=seed,
        console=console,
        parts=tuple(options.part),
        platforms=tuple(options.platform),
        models=tuple(options.model),
        plots=None if options.json is None else options.json.parent,
        peer_python=options.peer_python,
        traces=tuple(options.trace),
        device=options.device,
        keep=keep,
    )
    promised = benchmark.promised(settings.parts, quick=settings.quick)
    report = report_of(benchmark.run(settings))
    report.check_figures(promised, may_leave_out=benchmark.may_leave_out)
    if partial is not None:
        options.json.write_text(report.to_json())
        partial.unlink(missing_ok=True)
    console.print(report.table())


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    result.add_argument(
        "name",
        choices=[*sorted(MODULES), RESULTS],
        help="what to measure; results: list what was measured, and which code has changed since",
    )
    result.add_argument(
        "--quick", action="store_true", help="less data, within 5 minutes (results: the same)"
    )
    result.add_argument(
        "--part",
        action="append",
        default=[],
        metavar="PART",
        help="only this part of the benchmark; may be given several times",
    )
    result.add_argument(
        "--simulate",
        action="append_const",
        dest="part",
        const=SIMULATE,
        help="restore, cake: the paper's platforms by the cost model; the same as --part simulate",
    )
    for option, form in (
        ("--platform", "NAME[,TFLOPS,GB_PER_S][,SSDS]"),
        ("--model", "NAME[,LAYERS,HIDDEN[,KV[,GPUS]]]"),
    ):
        result.add_argument(
            option,
            action="append",
            default=[],
            metavar=form,
            help="with --simulate: show this one, too; may be given several times",
        )
    result.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="write figures and samples there, pictures beside it",
    )
    result.add_argument(
        "--folder",
        type=Path,
        default=DEFAULT_FOLDER,
        help="where scratch folders of up to 10 GB are made (default: %(default)s)",
    )
    result.add_argument(
        "--peer-python",
        type=Path,
        metavar="PATH",
        help="peers: the interpreter of an environment that has LMCache",
    )
    result.add_argument(
        "--trace",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="tiering: replay these requests (JSON lines in Mooncake's format); may be given "
        "several times",
    )
    result.add_argument(
        "--device", choices=["cuda", "cpu"], help="gpu: cpu rehearses with small sizes"
    )
    result.add_argument("--seed", type=int, help="repeat the order and payload of an earlier run")
    return result


def end_by_exception() -> None:
    """Lets SIGTERM unwind as an interrupt does: daemons end, and the system is left as it was."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(_EXIT_SIGNAL + number))


if __name__ == "__main__":
    end_by_exception()
    sys.exit(main())
