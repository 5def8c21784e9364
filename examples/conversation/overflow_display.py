"""The conversation that outgrew its window, as text and as a table."""

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from examples.conversation.overflow import Overflow, ToldTurn
from examples.conversation.script import KILLED_BEFORE


def make_text(overflow: Overflow) -> Table:
    """What both said, and between turns what happened to the window and the daemon."""
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    for turn in overflow.turns:
        for sentence in _events(turn, overflow.window_tokens):
            table.add_row("", Text(sentence, style="italic"))
        table.add_row("user", Text(turn.text))
        # Blank lines would separate what belongs together here.
        answer = " ".join(turn.answer.split())
        table.add_row("model", Text(f"{answer}{_verdict(turn)}", style="cyan"))
    return table


def _events(turn: ToldTurn, window_tokens: int) -> list[str]:
    events = []
    if turn.number == KILLED_BEFORE:
        events.append("(The daemon was killed and started again.)")
    if turn.dropped_tokens:
        events.append(
            f"(The window of {window_tokens} tokens overflowed in this turn: its first "
            f"{turn.dropped_tokens} were dropped.)"
        )
    return events


def _verdict(turn: ToldTurn) -> str:
    if not turn.expected:
        return ""
    return "  (right)" if turn.answer == turn.expected else f"  (right would be: {turn.expected})"


def make_window_table(overflow: Overflow) -> Table:
    """One row per turn."""
    table = Table(
        title=f"A window of {overflow.window_tokens} tokens that overflowed.",
        caption="history: tokens before the turn; equal: as in a cache that was kept",
        box=SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    for name in ("turn", "history", "dropped", "restored", "computed", "equal"):
        table.add_column(name, justify="right")
    for turn in overflow.turns:
        table.add_row(
            str(turn.number),
            str(turn.history_tokens),
            str(turn.dropped_tokens),
            str(turn.restored_tokens),
            str(turn.computed_tokens),
            "yes" if turn.tokens_equal else "NO",
        )
    return table
