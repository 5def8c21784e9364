"""The request of four documents, as text and as a table."""

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from examples.conversation.linked import LinkedRequest


def make_documents(request: LinkedRequest) -> Table:
    """What the model reads, in this order, and what it is asked."""
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    for number, text in enumerate(request.documents, start=1):
        table.add_row(f"document {number}", Text(text))
    asked = f"{request.question}  (right would be: {request.expected})"
    table.add_row("question", Text(asked, style="cyan"))
    return table


def make_methods_table(request: LinkedRequest) -> Table:
    """One row for each method."""
    table = Table(
        title="Four stored documents, in an order never seen before.",
        caption="loaded, computed: tokens of the prompt; TTFT: ms",
        box=SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    for name in ("linked by", "loaded", "computed", "TTFT", "answer"):
        table.add_column(name, justify="right")
    for each in request.answers:
        is_right = each.answer == request.expected
        table.add_row(
            each.method,
            str(each.restored_tokens),
            str(each.computed_tokens),
            f"{each.ttft_s * 1e3:.0f}",
            Text(f"{each.answer} ({'right' if is_right else 'wrong'})"),
        )
    return table
