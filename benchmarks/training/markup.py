"""Documents in their markups as plain paragraphs. Pure."""

import ast
import re

_FONT = re.compile(r"\\f(?:\[[^\]]*\]|\(..|.)|\\s[+-]?\d")
_ESCAPES = (
    (re.compile(r"\\\((?:aq|cq|oq)|\\\[(?:aq|cq|oq)\]"), "'"),
    (re.compile(r"\\\((?:dq|lq|rq)|\\\*\(?[lr]q|\\\[(?:dq|lq|rq)\]"), '"'),
    (re.compile(r"\\\((?:em|en)|\\\[(?:em|en)\]"), "-"),
    (re.compile(r"\\\(..|\\\[[^\]]*\]|\\\*(?:\(..|\[[^\]]*\]|.)"), ""),
    (re.compile(r"\\[&/,|^:%c)]"), ""),
    (re.compile(r"\\[ ~0]"), " "),
    (re.compile(r"\\-"), "-"),
    (re.compile(r"\\[e\\]"), r"\\"),
)
_FONT_REQUESTS = frozenset({"B", "I", "R", "BI", "BR", "IB", "IR", "RB", "RI", "SM", "SB"})
_CODE_BEGINS = frozenset({"nf", "EX", "Bd", "TS", "de"})
_CODE_ENDS = frozenset({"fi", "EE", "Ed", "TE", "."})
_POD_CODE = re.compile(r"[A-Z](?:<<+ (.*?) >>+|<([^<>]*)>)", re.DOTALL)
POD_CODE_DEPTH = 3
_MARKDOWN_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")


def roff_paragraphs(text: str) -> list[str]:
    """Those of a manual page, without headings, tables and code."""
    lines: list[str] = []
    is_code = False
    for line in text.splitlines():
        if not line.startswith((".", "'")):
            if not is_code:
                lines.append(line)
            continue
        words = line[1:].split()
        request = words[0] if words else ""
        if request in _CODE_BEGINS:
            is_code = True
        elif request in _CODE_ENDS:
            is_code = False
        if request in _FONT_REQUESTS and not is_code:
            glue = " " if len(request) == 1 or request in {"SM", "SB"} else ""
            lines.append(glue.join(word.strip('"') for word in words[1:]))
        elif not request.startswith('\\"') and request not in _FONT_REQUESTS:
            lines.append("")
    return plain_paragraphs(_without_escapes("\n".join(lines)))


def _without_escapes(text: str) -> str:
    text = _FONT.sub("", text)
    for pattern, plain in _ESCAPES:
        text = pattern.sub(plain, text)
    return text


def pod_paragraphs(text: str) -> list[str]:
    """Those of the POD in a Perl module or a .pod file, without headings and code."""
    blocks: list[str] = []
    is_pod = False
    for block in re.split(r"\n\s*\n", text):
        if block.startswith("="):
            is_pod = not block.startswith(("=cut", "=begin", "=encoding"))
        elif is_pod and not block.startswith((" ", "\t")):
            blocks.append(_without_pod_codes(block))
    return plain_paragraphs("\n\n".join(blocks))


def _without_pod_codes(text: str) -> str:
    """Codes may stand in others, from the innermost outwards."""
    for _ in range(POD_CODE_DEPTH):
        text = _POD_CODE.sub(lambda match: match[1] or match[2] or "", text)
    return text


def markdown_paragraphs(text: str) -> list[str]:
    """Those of Markdown or reStructuredText, without code blocks, tables and headings."""
    kept: list[str] = []
    is_fenced = False
    for line in text.splitlines():
        if line.lstrip().startswith(("```", "~~~")):
            is_fenced = not is_fenced
            kept.append("")
        elif is_fenced or line.startswith(("|", "#", "    ", "\t", "..")):
            kept.append("")
        else:
            kept.append(line)
    text = _MARKDOWN_LINK.sub(lambda match: match[1], "\n".join(kept))
    return plain_paragraphs(re.sub(r"\*\*|`+", "", text))


def docstring_paragraphs(source: str) -> list[str]:
    """Those of all docstrings of a Python module, in the order of the source; none if it is none.

    Lines that are indented deeper than their docstring are taken for code.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return []
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds))
    paragraphs: list[str] = []
    for docstring in found:
        if docstring:
            lines = [
                "" if line.startswith((" ", ">>>")) else line for line in docstring.split("\n")
            ]
            paragraphs += plain_paragraphs("\n".join(lines))
    return paragraphs


def plain_paragraphs(text: str) -> list[str]:
    """What blank lines separate, each in one line with single spaces."""
    blocks = (" ".join(block.split()) for block in re.split(r"\n\s*\n", text))
    return [block for block in blocks if block]
