"""``kvstored completion``: prints what completes this command line in a shell."""

import argparse
import sys

from kvstored.cli.manual.completion import SHELLS


def add_options(verb: argparse.ArgumentParser) -> None:
    """Adds what only this verb takes to its command line."""
    verb.add_argument("shell", choices=tuple(SHELLS), help="the shell; docs/install.md says where")


def run(options: argparse.Namespace) -> int:
    """Prints a script."""
    # Only here: it imports every verb, this one among them.
    from kvstored.cli.manual.describe import described

    sys.stdout.write(SHELLS[options.shell](described()))
    return 0
