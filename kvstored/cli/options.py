"""What the command lines of several verbs have in common."""

import argparse


def add_json_option(verb: argparse.ArgumentParser) -> None:
    """Adds ``--json``."""
    verb.add_argument("--json", action="store_true", help="print the result as JSON")
