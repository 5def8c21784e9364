"""``kvstored run``: the daemon in the foreground."""

import argparse
import logging
import sys

from kvstored.cli.options import Verbs
from kvstored.config import load_config
from kvstored.daemon import run_daemon

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def add_to(verbs: Verbs, common: argparse.ArgumentParser) -> None:
    """Adds the verb to the command line."""
    verb = verbs.add_parser("run", parents=[common], help="serve in the foreground")
    verb.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="least severity that is logged to stderr (default: %(default)s)",
    )
    verb.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serves until SIGTERM or SIGINT; 0 when everything was drained."""
    logging.basicConfig(stream=sys.stderr, level=options.log_level.upper(), format=LOG_FORMAT)
    run_daemon(load_config(options.config))
    return 0
