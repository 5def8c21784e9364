"""What the command lines of several verbs have in common."""

import argparse
from typing import Protocol


class Verbs(Protocol):
    """The verbs of the command line, as argparse lets them be added."""

    def add_parser(
        self,
        name: str,
        *,
        parents: list[argparse.ArgumentParser],
        help: str,  # noqa: A002 - argparse names it so
    ) -> argparse.ArgumentParser:
        """Adds a verb."""


def add_json_option(verb: argparse.ArgumentParser) -> None:
    """Adds ``--json``."""
    verb.add_argument("--json", action="store_true", help="print the result as JSON")
