"""Takes the description of the command line from its parsers."""

import argparse

from kvstored.cli.main import DESCRIPTION, VERBS, verb_of
from kvstored.cli.manual.command_line import CommandLine, Option, Verb
from kvstored.cli.options import add_config_option


def described() -> CommandLine:
    """The command line as its parsers have it; imports every verb."""
    verbs = tuple(_verb(name, text) for name, text in VERBS.items())
    return CommandLine(name="kvstored", text=DESCRIPTION, verbs=verbs)


def _verb(name: str, text: str) -> Verb:
    parser = argparse.ArgumentParser(prog=f"kvstored {name}")
    add_config_option(parser)
    verb_of(name).add_options(parser)
    formatter = parser.formatter_class(prog=parser.prog)
    options = []
    # argparse has no other way to its arguments.
    for action in parser._actions:  # noqa: SLF001
        takes_value = action.nargs != 0
        choices = tuple(map(str, action.choices or ()))
        named = action.metavar if isinstance(action.metavar, str) else action.dest
        options.append(
            Option(
                flags=tuple(action.option_strings),
                value=(named.upper() if action.option_strings else named) if takes_value else "",
                text=formatter._expand_help(action) if action.help else "",  # noqa: SLF001
                choices=choices,
            )
        )
    return Verb(name=name, text=text, options=tuple(options))
