"""Calls that may block, and the page that lists what a caller waits for. Pure."""

import ast
import re
from collections.abc import Iterator

BLOCKING = {
    "acquire",
    "communicate",
    "poll",
    "recv",
    "result",
    "settimeout",
    "sleep",
    "timeout",
    "wait",
    "wait_for",
}
"""Names of methods and functions that block, whatever they belong to."""

_NAMED = re.compile(r"`((?:kvstored|client|engine_adapters)/[\w/]+\.py)`")


def blocking_calls(tree: ast.Module) -> Iterator[ast.Call]:
    """Every call of a name that blocks."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _may_block(node):
            yield node


def named_files(table_text: str) -> set[str]:
    """The product's files that a text names."""
    return set(_NAMED.findall(table_text))


def _may_block(call: ast.Call) -> bool:
    match call.func:
        case ast.Attribute(value=ast.Constant(), attr="join"):
            return False
        case ast.Attribute(attr="join"):
            return _joins_a_thread(call)
        case ast.Attribute(attr="get"):
            return any(keyword.arg == "timeout" for keyword in call.keywords)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name in BLOCKING
    return False


def _joins_a_thread(call: ast.Call) -> bool:
    """Texts and paths are joined from something; a thread from nothing, or for a time."""
    return all(isinstance(argument, ast.Name) and argument.id.isupper() for argument in call.args)
