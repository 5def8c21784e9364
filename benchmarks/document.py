"""A long text and a model to read it: real English that every checkout has."""

import shutil
import textwrap
from pathlib import Path
from pydoc_data.topics import topics

from engine_adapters.runner.model.random_model import RandomModelShape, write_random_model
from engine_adapters.runner.model.tokenizer import Tokenizer

PROJECT = Path(__file__).parents[1]

TOKENIZER_BYTES = 300_000
"""How much of the text the tokenizer is trained on."""

TOKEN_BYTES = 10
"""More than a token of a byte-pair tokenizer has on average, by far."""


def corpus() -> str:
    """The project's own documents, then the topics of Python's language reference."""
    own = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]
    documents = [path.read_text(encoding="utf-8") for path in own if path.is_file()]
    reference = [textwrap.dedent(topics[name]) for name in sorted(topics)]
    return "\n\n".join(documents + reference)


def random_model(folder: Path, *, kv_heads: int) -> Path:
    """A model directory in ``folder`` with seeded random weights; written when it is missing."""
    directory = folder / f"model-{kv_heads}-kv-heads"
    if not directory.exists():
        # Renamed when it is whole, so that an interrupted run leaves nothing half-written.
        unfinished = directory.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        shape = RandomModelShape(kv_head_count=kv_heads)
        write_random_model(unfinished, shape, [corpus()[:TOKENIZER_BYTES]])
        unfinished.rename(directory)
    return directory


def document_tokens(model: Path, count: int) -> list[int]:
    """The first ``count`` tokens of the text."""
    tokenizer = Tokenizer.from_directory(model)
    return tokenizer.encode(corpus()[: count * TOKEN_BYTES])[:count]
