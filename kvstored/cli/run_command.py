"""``kvstored run``: the daemon in the foreground."""

import argparse
import logging
import os
import sys
from functools import partial

from kvstored.config import LogLevel, load_config
from kvstored.daemon import run_daemon
from kvstored.journal_log import JournalHandler, is_journal
from kvstored.reload import Reload
from kvstored.stream_log import StreamLog

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def add_options(verb: argparse.ArgumentParser) -> None:
    """Adds what only this verb takes to its command line."""
    verb.add_argument(
        "--log-level",
        choices=tuple(LogLevel),
        help="least severity that is logged to stderr (default: as log.level says)",
    )


def run(options: argparse.Namespace) -> int:
    """Serves until SIGTERM or SIGINT; 0 when everything was drained."""
    config = load_config(options.config)
    level = options.log_level or config.log.level
    logging.basicConfig(handlers=[log_handler()], level=level.upper(), format=LOG_FORMAT)
    run_daemon(
        config,
        reload=Reload(
            read=partial(load_config, options.config),
            started_with=config,
            log_level=options.log_level,
        ),
    )
    return 0


def log_handler() -> logging.Handler:
    """Where the log goes: to the journal if that reads stderr, else to stderr."""
    lines = StreamLog(sys.stderr.fileno())
    return JournalHandler(lines) if is_journal(sys.stderr.fileno(), os.environ) else lines
