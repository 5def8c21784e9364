"""Figures that documents quote: each must be in the result that is linked beside it. Pure.

A block is a paragraph, an item of a list or a row of a table. Where it links results, all its
numbers are figures. Of a benchmark they must be the value, median, least, most or number of samples
of a series that the block names, as `` `key` `` or `` `pattern*` ``; of another program, numbers of
the file, or sums of those of one name. Elsewhere no number may look like something measured: with a
decimal point, or before a unit of speed or of microseconds. What is in code, sizes of what was set
(256 tokens, 1 MiB), and numbers after a word such as *table*, *limit* or *paper* are no figures.

A fence that is to show what a program printed names the text: ```` ```text results/NAME.txt ````.
"""

import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any

Results = Mapping[str, Any]
Read = Callable[[str], Results]
"""The JSON of a result by its name; raises OSError where there is none."""

_EXCERPT = re.compile(
    r"^```text (?:docs/)?results/(?P<name>\w+\.txt)\n(?P<lines>.*?)^```$", re.DOTALL | re.MULTILINE
)
_FENCE = re.compile(r"^( *)```.*?^\1```$", re.DOTALL | re.MULTILINE)
_STRETCH = re.compile(r"<!-- results \S.*?<!-- end -->", re.DOTALL)
_BLOCK_START = re.compile(r"\s*(?:[*-] |\d+\. |\||#|$)")
_PICTURE = re.compile(r"!\[[^]]*\]\([^)]*\)")
_LINK = re.compile(
    r"(?<!!)\[(?P<text>[^]]*)\]\((?P<folder>(?:docs/)?results/)(?P<name>\w+)\.(?P<form>json|txt)\)"
)
_MENTION = re.compile(r"results/(\w+\.(?:json|txt|png))")
_OTHER_LINK = re.compile(r"\]\([^)]*\)")
_CODE = re.compile(r"`([^`]+)`")
_NUMBER = r"[-+]?\d[\d,]*(?:\.\d+)*"
_REFERENCE = re.compile(
    rf"\b(?:(?:tables?|sections?|figures?)\s+{_NUMBER}(?:(?:,\s| and | to ){_NUMBER})*"
    rf"|(?:limits?(?: of)?|paper|Python(?: >=)?|Linux|vLLM)\s+{_NUMBER}(?:\sto\s{_NUMBER})?x?)",
    re.IGNORECASE,
)
_VERSION = re.compile(r"\b\d+\.\d+\.\d+\b")
_SETTING = re.compile(
    r"(?<![\w.])[\d,]+(?:\s+(?:to|or|and)\s+[\d,]+)?\s+(?:[KMG]iB|bits?|tokens|layers|threads)\b"
)
_FIGURE = re.compile(
    rf"(?<![\w.,])(?P<number>{_NUMBER})(?:\s*(?P<unit>%|million\b|[uµ]s\b|[MG]B/s)|x\b|(?!\w))"
)
_UNITS_OF_SPEED = {"us", "µs", "MB/s", "GB/s"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number as a document prints it."""

    printed: str
    unit: str

    @property
    def looks_measured(self) -> bool:
        """Whether it needs a source wherever it stands."""
        return "." in self.printed or self.unit in _UNITS_OF_SPEED

    def equals(self, value: float) -> bool:
        """Whether ``value`` is this, rounded as it is printed; parts may be printed as %."""
        scale = 1e6 if self.unit == "million" else 1.0
        decimals = len(self.printed.partition(".")[2])
        tolerance = (0.5 * 10**-decimals + 1e-9) * scale
        printed = float(self.printed.replace(",", "")) * scale
        forms = (value, value * 100) if self.unit == "%" else (value,)
        return any(abs(form - printed) <= tolerance for form in forms)


def wrong_quotes(text: str, read: Read) -> list[str]:
    """One sentence for each figure of a document that is in no result beside it."""
    return [sentence for block in blocks(text) for sentence in _wrong_in(block, read)]


def wrong_excerpts(text: str, read_text: Callable[[str], str]) -> list[str]:
    """The names of texts of which a fence shows lines that are not there, one after the other."""
    return [
        match["name"]
        for match in _EXCERPT.finditer(text)
        if _lines(match["lines"]) not in _lines(read_text(match["name"]))
    ]


def with_ages(text: str, age: Callable[[str], str]) -> str:
    """``text`` in which the words of every link to a result are its file and its age."""

    def link(match: re.Match[str]) -> str:
        file = f"{match['name']}.{match['form']}"
        return f"[{file}, {age(match['name'])}]({match['folder']}{file})"

    return _LINK.sub(link, text)


def blocks(text: str) -> list[str]:
    """Paragraphs, items and rows, without written tables, fences and pictures."""
    for pattern in (_STRETCH, _FENCE, _PICTURE):
        text = pattern.sub("\n", text)
    found: list[list[str]] = [[]]
    for line in text.splitlines():
        if _BLOCK_START.match(line):
            found.append([])
        found[-1].append(line)
    return [block for lines in found if (block := "\n".join(lines).strip())]


def figures(block: str) -> list[Figure]:
    """The numbers of a block that are figures."""
    for pattern in (_LINK, _OTHER_LINK, _CODE, _REFERENCE, _VERSION, _SETTING):
        block = pattern.sub(" x ", block)
    return [
        Figure(printed=match["number"].rstrip(","), unit=match["unit"] or "")
        for match in _FIGURE.finditer(block)
    ]


def _lines(text: str) -> str:
    """Without what stands at the end of lines, framed so that only whole lines are found."""
    return "".join(f"\n{line.rstrip()}" for line in text.strip("\n").splitlines()) + "\n"


def _wrong_in(block: str, read: Read) -> Iterator[str]:
    names = [match["name"] for match in _LINK.finditer(block)]
    for mention in _MENTION.findall(_LINK.sub("", block)):
        yield f"{_beginning(block)}: link {mention} instead of mentioning it"
    keys = _CODE.findall(block)
    try:
        values = [value for name in names for value in _values(read(name), keys)]
    except OSError as error:
        yield f"{_beginning(block)}: there is no result {error.filename}"
        return
    for figure in figures(block):
        if names and not any(figure.equals(value) for value in values):
            sources = ", ".join(dict.fromkeys(names))
            yield f"{_beginning(block)}: {figure.printed} is in no series of {sources} named there"
        elif not names and figure.looks_measured:
            yield f"{_beginning(block)}: {figure.printed} is measured by nothing that is named"


def _values(results: Results, keys: list[str]) -> Iterator[float]:
    """What a block that names ``keys`` may quote."""
    if "samples" not in results:
        yield from _numbers(results)
        return
    for series, samples in results["samples"].items():
        if any(fnmatch(series, key) for key in keys):
            yield from (statistics.median(samples), min(samples), max(samples), len(samples))
            if series in results["figures"]:
                yield results["figures"][series]


def _numbers(results: Results) -> Iterator[float]:
    """All numbers of a document, and the sum of those of one name."""
    by_name: dict[str, list[float]] = defaultdict(list)

    def visit(name: str, value: object) -> None:
        if isinstance(value, Mapping):
            for key, each in value.items():
                visit(str(key), each)
        elif isinstance(value, list):
            for each in value:
                visit(name, each)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            by_name[name].append(value)

    visit("", results)
    for values in by_name.values():
        yield from (*values, sum(values))


def _beginning(block: str) -> str:
    return " ".join(block.split())[:60]
