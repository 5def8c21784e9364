"""A command line with its verbs, as values. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option, or a positional argument, which has no ``flags``.

    ``value`` names what it takes; it is empty for a switch.
    """

    flags: tuple[str, ...]
    value: str
    text: str
    choices: tuple[str, ...] = ()

    @property
    def takes_file(self) -> bool:
        """Whether its value is the name of a file."""
        return self.value.lower() in {"file", "path"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """A verb with everything that follows it."""

    name: str
    text: str
    options: tuple[Option, ...]

    @property
    def flagged(self) -> tuple[Option, ...]:
        """Those with flags."""
        return tuple(option for option in self.options if option.flags)

    @property
    def positional(self) -> tuple[Option, ...]:
        """Those without."""
        return tuple(option for option in self.options if not option.flags)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLine:
    """The whole command."""

    name: str
    text: str
    verbs: tuple[Verb, ...]
