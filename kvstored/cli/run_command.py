"""``kvstored run``: the daemon in the foreground."""

import argparse
import logging
import sys

from kvstored.config import load_config
from kvstored.daemon import run_daemon

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def add_options(verb: argparse.ArgumentParser) -> None:
    """Adds what only this verb takes to its command line."""
    verb.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="least severity that is logged to stderr (default: %(default)s)",
    )


def run(options: argparse.Namespace) -> int:
    """Serves until SIGTERM or SIGINT; 0 when everything was drained."""
    logging.basicConfig(stream=sys.stderr, level=options.log_level.upper(), format=LOG_FORMAT)
    run_daemon(load_config(options.config))
    return 0
