"""A command line that is none of ours."""

from kvstored.cli.manual.command_line import CommandLine, Option, Verb

SAMPLE = CommandLine(
    name="tool",
    text="A tool.",
    verbs=(
        Verb(
            name="cut",
            text="cut what's there",
            options=(
                Option(flags=("-h", "--help"), value="", text="show help"),
                Option(flags=("--level",), value="LEVEL", text="how [deep]: a", choices=("a", "b")),
                Option(flags=("--from",), value="FILE", text="what"),
                Option(flags=("--size",), value="SIZE", text="how \\ much"),
                Option(flags=(), value="file", text=".where"),
            ),
        ),
        Verb(
            name="pick",
            text="pick one",
            options=(Option(flags=(), value="which", text="one", choices=("x", "y")),),
        ),
    ),
)
