"""Words that are better replaced, where they stand."""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

from tests.tidy.sources import ROOT, python_files, text_of, tree_of

TIMES = (
    "answer|append|body|boot|burst|call|change|commit|copy|crash|deadline|death|end|failure|flush"
    "|forward|handshake|jump|kill|load|look|look-up|loss|match|moment|phase|preemption|put|read|rebuild|recovery"
    "|reply|request|reset|restart|restore|run|save|scan|scrub|second|shutdown|snapshot|start|step"
    "|stop|sync|transaction|turn|update|use|warm-up|while|write"
)
ARTICLES = "(?:an?|the|which|its|their|each|every|this|that)"
VERBS = "begin|close|end|finish|flush|open|put|read|run|start|stop|take|wait"
"""How names of functions begin: after such a call is a time."""
AVOIDED = {
    r"\banew\b": "again, or a new one",
    r"\bsome\s+day\b": "eventually, or when",
    r"\bwhoever\b": "name who it is",
    r"\b(?:is|are|was|were|be|been|being)\s+(?:not\s+)?told\b(?!\s+apart)": (
        "say who tells it, or what hears, gets or reports it"
    ),
    rf"\bbehind\s+(?:{ARTICLES}\s+(?:[\w-]+\s+)?(?:{TIMES})s?\b|``(?:{VERBS})|each[.,;:])": (
        "after: behind is for places"
    ),
}
"""By pattern, what to write instead."""


@cache
def texts() -> list[tuple[str, str]]:
    """Texts with the place that they count for: code, messages, docstrings of tests, docs."""
    whole = [*documents(), *sorted((ROOT / "protos").rglob("*.proto"))]
    found = [(str(path.relative_to(ROOT)), text_of(path)) for path in whole]
    for path in python_files():
        is_test = path.relative_to(ROOT).parts[0] == "tests"
        found.append((place_of(path), docstrings(path) if is_test else text_of(path)))
    return found


def documents() -> list[Path]:
    """What is written for readers of the repository."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def place_of(path: Path) -> str:
    """A folder of the second level: files that move within it stay in their place."""
    return "/".join(path.relative_to(ROOT).parent.parts[:2])


def docstrings(path: Path) -> str:
    """All docstrings of a file."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = (ast.get_docstring(node) for node in ast.walk(tree_of(path)) if isinstance(node, kinds))
    return "\n".join(text for text in found if text)


def count(pattern: str) -> Counter[str]:
    """How often a pattern stands in each place, in whatever case."""
    found: Counter[str] = Counter()
    for place, text in texts():
        found[place] += len(re.findall(pattern, text, re.IGNORECASE))
    return found
