"""The page of the manual, in roff. Pure."""

from kvstored.cli.manual.command_line import CommandLine, Option, Verb


def manual_page(line: CommandLine, *, version: str) -> str:
    """All of ``kvstored(1)``."""
    verbs = "".join(f".TP\n.B {_text(verb.name)}\n{_text(verb.text)}\n" for verb in line.verbs)
    details = "".join(map(_verb, line.verbs))
    return (
        f'.TH {line.name.upper()} 1 "" "{line.name} {version}" "User Commands"\n'
        f".SH NAME\n{line.name} \\- {_text(line.text.lower().rstrip('.'))}\n"
        f".SH SYNOPSIS\n.B {line.name}\n.I VERB\n[options]\n"
        f".SH VERBS\n{verbs}"
        f"{details}"
        ".SH EXIT STATUS\n"
        ".TP\n.B 0\nAll is well.\n"
        ".TP\n.B 1\nIt ran and found something wrong.\n"
        ".TP\n.B 2\nIt could not run; one sentence on stderr says why.\n"
        ".SH ENVIRONMENT\n"
        ".TP\n.B KVSTORED_SECTION__KEY\nOverrides a key of the configuration.\n"
        ".SH FILES\n"
        ".TP\n.I /etc/kvstored/kvstored.toml\nThe configuration; \\-\\-config names another.\n"
    )


def _verb(verb: Verb) -> str:
    usage = " ".join(option.value for option in verb.positional)
    options = "".join(map(_option, verb.options))
    return (
        f".SH {_text(verb.name.upper())}\n"
        f"{_text(verb.text.capitalize())}.\n"
        f".PP\n.B kvstored {verb.name}\n{f'[options] {_text(usage)}'.strip()}\n"
        f"{options}"
    )


def _option(option: Option) -> str:
    value = "{" + ",".join(option.choices) + "}" if option.choices else option.value
    if option.flags:
        head = ", ".join(f"\\fB{_text(flag)}\\fR" for flag in option.flags)
        head += f" \\fI{_text(value)}\\fR" if value else ""
    else:
        head = f"\\fI{_text(value)}\\fR"
    return f".TP\n{head}\n{_text(option.text)}\n"


def _text(text: str) -> str:
    """What roff takes for text: no line of it is a request."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
