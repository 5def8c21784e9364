"""The ``kvstored`` command.

A verb's module is imported when that verb is called and no sooner: the daemon restarts itself
once before it serves (``restart_tuned``), and whatever was imported until then was in vain.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Protocol, cast

from kvstored import package_version
from kvstored.c_library import restart_tuned
from kvstored.cli.options import add_config_option

DESCRIPTION = "The attention state store."
VERBS = {
    "init": "write a commented configuration for this machine",
    "doctor": "look at the machine: what is wrong with it, or slow, and what helps",
    "format": "reserve the devices and make them a new, empty set",
    "run": "serve in the foreground",
    "ping": "ask the daemon whether it is there",
    "stats": "show counters of the daemon",
    "quotas": "show what each namespace takes, and what it may",
    "ls": "list stored chunks",
    "inspect": "show one chunk and its slices",
    "top": "show what the daemon does now, again and again",
    "warm": "bring a sequence, or chunks by their key, into DRAM",
    "pin": "keep a sequence, or chunks by their key, for some time; or show what is kept",
    "unpin": "end a pin, or all",
    "quota": "show the quota of a namespace, or change it until the next start",
    "drain": "take no new sessions and writes, and wait until everything is durable",
    "export": "write a sequence to a file that can be checked",
    "import": "store a sequence from such a file, after all of it is verified",
    "check": "verify every stored byte; the daemon must not run",
    "bench": "measure scratch files beside the devices",
    "completion": "print what completes this command line in a shell",
}
"""Every verb, in the order of use, with its line of help."""
_NEEDED = frozenset(
    {
        "aiohttp",
        "lmdb",
        "prometheus_client",
        "pydantic",
        "pydantic_settings",
        "rich",
        "xxhash",
        "zstandard",
    }
)
"""What the extra ``daemon`` brings: an installation of the SDK alone has the command without it."""


_PACKAGES = {
    **dict.fromkeys(("top", "warm", "pin", "unpin", "quota", "drain"), "kvstored.cli.operate"),
    **dict.fromkeys(("export", "import"), "kvstored.cli.sequence_file"),
    "completion": "kvstored.cli.manual",
}
"""Where the modules of verbs are that are not in ``kvstored.cli``."""


class Verb(Protocol):
    """What the module of a verb has."""

    def add_options(self, verb: argparse.ArgumentParser) -> None:
        """Adds what only this verb takes to its command line."""

    def run(self, options: argparse.Namespace) -> int:
        """Does it; returns the exit status."""


class _ShowVersion(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        sys.stdout.write(f"kvstored {package_version()}\n")
        parser.exit()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one verb; returns its exit status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    # No option of the command itself stands before a verb.
    called = given[0] if given and given[0] in VERBS else None
    if arguments is None and called == "run":
        restart_tuned()
    verb = None if called is None else verb_of(called)
    options = _parser(called, verb).parse_args(given)
    assert verb is not None, "a verb is required"
    return _run(verb, options)


def verb_of(name: str) -> Verb:
    """The module of a verb; exits with one sentence where a package of the daemon is missing."""
    try:
        return cast("Verb", import_module(f"{_PACKAGES.get(name, 'kvstored.cli')}.{name}_command"))
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package not in _NEEDED:
            raise
        sys.exit(
            f"kvstored {name}: the package {package} is not installed, which the daemon and its "
            f"command need; install kvstored[daemon]"
        )


def _run(verb: Verb, options: argparse.Namespace) -> int:
    from kvstored.cli.errors import EXIT_REFUSED, EXPECTED_ERRORS

    try:
        return verb.run(options)
    except EXPECTED_ERRORS as error:
        sys.stderr.write(f"kvstored {options.verb}: {error}\n")
        return EXIT_REFUSED
    except KeyboardInterrupt:
        return EXIT_REFUSED


def _parser(called: str | None, called_verb: Verb | None) -> argparse.ArgumentParser:
    """The command line of all verbs, with the options of the one that is called."""
    top = argparse.ArgumentParser(prog="kvstored", description=DESCRIPTION)
    top.add_argument("--version", action=_ShowVersion, nargs=0, help="show the version and end")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, text in VERBS.items():
        verb = verbs.add_parser(name, help=text)
        add_config_option(verb)
        if called_verb is not None and name == called:
            called_verb.add_options(verb)
    return top
