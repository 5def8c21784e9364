"""What belongs into a bundle. Pure."""

import re
from collections.abc import Callable, Iterable, Sequence

BYTES_MAX = 40_000_000
"""Of the whole folder: it has to travel."""
ROOTS = (
    *("grpcio", "numpy", "protobuf", "typing-extensions"),
    *("aiohttp", "lmdb", "prometheus-client", "pydantic", "pydantic-settings", "rich", "xxhash"),
    *("zstandard", "safetensors", "tokenizers"),
    *("hypothesis", "pytest", "pytest-asyncio", "pytest-timeout"),
)
"""What the daemon, the runner and the marked tests import, PyTorch apart."""
THERE = frozenset({"torch", "huggingface-hub"})
"""PyTorch is on the machine already; ``tokenizers`` names the other one and imports it only to
download."""
FOLDERS = ("benchmarks", "client", "engine_adapters", "kvstored", "protos", "tests")
FILES = ("README.md", "pyproject.toml")
LEFT_OUT = ("benchmarks/quality/model/",)
UNUSED = re.compile(r"(^|/)tests?/|\.pyi$|(^|/)zstandard/_cffi\.")
"""Members of wheels that nothing imports here: tests, stubs, and a second build of zstandard."""
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_SEPARATORS = re.compile(r"[-_.]+")


def normal(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return _SEPARATORS.sub("-", name).lower()


def closure(
    roots: Iterable[str], requires: Callable[[str], Sequence[str]], *, there: frozenset[str] = THERE
) -> list[str]:
    """``roots`` and all that they need, sorted, without what is ``there``.

    ``requires`` gives the requirements of a distribution that hold on the machine, extras apart.
    """
    found: set[str] = set()
    asked = [normal(name) for name in roots]
    while asked:
        name = asked.pop()
        if name in found or name in there:
            continue
        found.add(name)
        asked += [normal(match[0]) for text in requires(name) if (match := _NAME.match(text))]
    return sorted(found)


def is_used(member: str) -> bool:
    """Whether a member of a wheel belongs into the bundle."""
    return UNUSED.search(member) is None


def wheel_prefix(name: str, version: str) -> str:
    """What the file name of a wheel begins with."""
    return f"{normal(name).replace('-', '_')}-{version}-"


def is_packed(path: str) -> bool:
    """Whether a committed file belongs into the bundle; of documents, texts that models read."""
    if path.startswith(LEFT_OUT):
        return False
    is_document = path.startswith("docs/") and path.endswith(".md")
    return path in FILES or path.partition("/")[0] in FOLDERS or is_document
