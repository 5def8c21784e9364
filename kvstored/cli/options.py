"""What the command lines of several verbs have in common."""

import argparse
from collections.abc import Callable
from pathlib import Path

DEFAULT_CONFIG_PATH = Path("/etc/kvstored/kvstored.toml")


def add_config_option(verb: argparse.ArgumentParser) -> None:
    """Adds ``--config``, which every verb takes."""
    verb.add_argument(
        "--config",
        type=Path,
        default=DEFAULT_CONFIG_PATH,
        metavar="FILE",
        help="configuration file (default: %(default)s)",
    )


def whole_number(most: int) -> Callable[[str], int]:
    """What reads a number from 1 to ``most``; it raises ArgumentTypeError."""

    def number(text: str) -> int:
        if not text.isdecimal() or not 1 <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 to {most}")
        return int(text)

    return number


def add_json_option(verb: argparse.ArgumentParser) -> None:
    """Adds ``--json``."""
    verb.add_argument("--json", action="store_true", help="print the result as JSON")
