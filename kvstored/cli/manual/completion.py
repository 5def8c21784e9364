"""Scripts that complete a command line in bash, zsh and fish. Pure."""

from collections.abc import Callable, Mapping

from kvstored.cli.manual.command_line import CommandLine, Option, Verb


def bash(line: CommandLine) -> str:
    """For bash: ``source`` it, or put it among the completions of the system."""
    verbs = " ".join(verb.name for verb in line.verbs)
    cases = []
    for verb in line.verbs:
        flags = " ".join(flag for option in verb.flagged for flag in option.flags)
        words = " ".join(word for option in verb.positional for word in option.choices)
        values = "".join(
            f"      {'|'.join(option.flags)}) {_bash_value(option)} return ;;\n"
            for option in verb.flagged
            if option.value
        )
        has_files = any(option.takes_file for option in verb.positional)
        files = " -f" if has_files else ""
        cases.append(
            f"    {verb.name})\n"
            f'      case "$before" in\n{values}      esac\n'
            f'      COMPREPLY=($(compgen{files} -W "{flags}{" " if words else ""}{words}" '
            '-- "$word")) ;;\n'
        )
    return (
        f"_{line.name}() {{\n"
        '  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"\n'
        "  COMPREPLY=()\n"
        '  if [ "$COMP_CWORD" -eq 1 ]; then\n'
        f'    COMPREPLY=($(compgen -W "{verbs} --version --help" -- "$word"))\n'
        "    return\n"
        "  fi\n"
        '  case "${COMP_WORDS[1]}" in\n'
        f"{''.join(cases)}"
        "  esac\n"
        "}\n"
        f"complete -o filenames -F _{line.name} {line.name}\n"
    )


def zsh(line: CommandLine) -> str:
    """For zsh: a file ``_kvstored`` in a folder of ``fpath``."""
    verbs = "".join(f"    {_quoted(f'{verb.name}:{verb.text}')}\n" for verb in line.verbs)
    cases = "".join(_zsh_case(verb) for verb in line.verbs)
    return (
        f"#compdef {line.name}\n"
        "local -a verbs\n"
        f"verbs=(\n{verbs})\n"
        "if (( CURRENT == 2 )); then\n"
        "  _describe verb verbs\n"
        "  return\n"
        "fi\n"
        "local verb=$words[2]\n"
        "shift words\n"
        "(( CURRENT-- ))\n"
        "case $verb in\n"
        f"{cases}"
        "esac\n"
    )


def fish(line: CommandLine) -> str:
    """For fish: a file in a folder of completions."""
    name = line.name
    lines = [f"complete -c {name} -f"]
    for verb in line.verbs:
        lines.append(
            f"complete -c {name} -n __fish_use_subcommand -a {verb.name} -d {_quoted(verb.text)}"
        )
        seen = f"complete -c {name} -n {_quoted(f'__fish_seen_subcommand_from {verb.name}')}"
        lines += [f"{seen} {_fish_option(option)}" for option in verb.options]
    return "\n".join(lines) + "\n"


SHELLS: Mapping[str, Callable[[CommandLine], str]] = {"bash": bash, "zsh": zsh, "fish": fish}


def _bash_value(option: Option) -> str:
    if option.choices:
        return f'COMPREPLY=($(compgen -W "{" ".join(option.choices)}" -- "$word"));'
    return 'COMPREPLY=($(compgen -f -- "$word"));' if option.takes_file else ""


def _zsh_case(verb: Verb) -> str:
    entries = []
    for option in verb.options:
        text = option.text.replace("[", "(").replace("]", ")").replace(":", " -")
        value = ""
        if option.value:
            kind = f"({' '.join(option.choices)})" if option.choices else ""
            value = f":{option.value}:{'_files' if option.takes_file else kind}"
        if option.flags:
            entries += [_quoted(f"{flag}[{text}]{value}") for flag in option.flags]
        else:
            entries.append(_quoted(value or ":"))
    return f"  {verb.name}) _arguments {' '.join(entries)} ;;\n"


def _fish_option(option: Option) -> str:
    parts = [
        f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags
    ]
    if option.flags and option.value:
        parts.append("-r")
    if option.takes_file:
        parts.append("-F")
    if option.choices:
        parts.append(f"-a {_quoted(' '.join(option.choices))}")
    return " ".join([*parts, f"-d {_quoted(option.text)}"])


def _quoted(text: str) -> str:
    """A word of a shell."""
    escaped = text.replace("'", "'\\''")
    return f"'{escaped}'"
