"""Verbs of the command line as jobs of the template: a process each, without its imports."""

import os
import sys
from importlib import import_module
from typing import Any

from kvstored.cli.main import main

MODULE = "tests.support.verbs"
VERB = f"{MODULE}:run_verb_job"
IMPORTED = ("bench", "check", "format", "inspect", "ls", "ping", "quotas", "stats")
"""Verbs whose modules the template has before it forks."""


def run_verb_job(arguments: dict[str, Any]) -> None:
    """Runs ``words`` as the command does, prints to the file ``output``, and ends the process."""
    output = os.open(arguments["output"], os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(output, sys.stdout.fileno())
    os.close(output)
    try:
        status = main(arguments["words"])
    except SystemExit as end:
        # The parser's refusal, which it has printed.
        status = end.code if isinstance(end.code, int) else 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


for _verb in IMPORTED:
    import_module(f"kvstored.cli.{_verb}_command")
