"""What the user says in the conversation that outgrows its window.

The model is small: it goes on with English text as manuals have it, and recalls pairs of words. So
the user begins paragraphs, tells pairs, and asks for one of them when the window has overflowed.
"""

from dataclasses import dataclass

PARAGRAPH_TOKENS = 64
"""Of an answer that goes on with a paragraph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saying:
    """The new turn of the user, and how many tokens the answer to it may have.

    ``expected`` is the one right answer; empty where there is none.
    """

    text: str
    answer_tokens: int = PARAGRAPH_TOKENS
    expected: str = ""


SAYINGS = (
    Saying(
        text="The server keeps copies of files in memory, so that programs need not wait for the "
        "disk. When a program opens a file, the server first looks for a copy. If there is none, "
        "it reads the file from the disk, and keeps what it has read until the memory is needed "
        "for something else. Which copies are removed first depends on when they were last used: "
        "the oldest ones go. A copy that was changed is written to the disk before it is removed, "
        "and the program gets an error if that fails. Several programs can read the same file at "
        "once. If one of them writes to it, the others see the new contents when they read "
        "the next time, but never one half of a change. In this case the server"
    ),
    Saying(
        text=" The size of the memory can be set in the configuration file. If the value is too "
        "large for the machine, the server prints a warning and uses the default. By default"
    ),
    Saying(
        text=" Some notes for later; wide signature; cursor filename; turn history; three "
        "sockets; side warning; hard transfer; matching pair; real suffix; screen amount; "
        "top boolean. If a file is removed while a program still reads it,"
    ),
    Saying(
        text=" The administrator can ask the server at any time which files are in memory, and "
        "how often each of them was used. The output of this command is a list, and"
    ),
    Saying(text="; turn", answer_tokens=1, expected="history"),
    Saying(
        text=". When the server is stopped, it no longer takes new requests, ends those that "
        "are under way, and writes all changes to the disk. If the disk is full,"
    ),
    Saying(
        text=" A backup of the files is made every night, at a time when few programs need the "
        "server. For this purpose,"
    ),
    Saying(text=" If the backup fails,"),
)
"""Together with the answers more than two windows of the small model."""

KILLED_BEFORE = 4
"""The turn before which the daemon is killed: the one that overflows the window."""
