"""The ``kvstored`` command."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from kvstored import __version__
from kvstored.c_library import restart_tuned
from kvstored.cli import (
    bench_command,
    check_command,
    format_command,
    inspect_command,
    ls_command,
    ping_command,
    run_command,
    stats_command,
)
from kvstored.cli.errors import EXIT_REFUSED, EXPECTED_ERRORS
from kvstored.config import DEFAULT_CONFIG_PATH

_VERBS = (
    format_command,
    run_command,
    ping_command,
    stats_command,
    ls_command,
    inspect_command,
    check_command,
    bench_command,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one verb; returns its exit status."""
    options = parser().parse_args(arguments)
    if arguments is None and options.run is run_command.run:
        restart_tuned()
    try:
        status: int = options.run(options)
    except EXPECTED_ERRORS as error:
        sys.stderr.write(f"kvstored {options.verb}: {error}\n")
        return EXIT_REFUSED
    except KeyboardInterrupt:
        return EXIT_REFUSED
    return status


def parser() -> argparse.ArgumentParser:
    """The command line of all verbs."""
    top = argparse.ArgumentParser(prog="kvstored", description="The attention state store.")
    top.add_argument("--version", action="version", version=f"kvstored {__version__}")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--config",
        type=Path,
        default=DEFAULT_CONFIG_PATH,
        help="configuration file (default: %(default)s)",
    )
    for verb in _VERBS:
        verb.add_to(verbs, common)
    return top
