"""The benchmarks by name, and the code that each result describes.

A module is imported when its benchmark is asked for.
"""

from collections.abc import Sequence
from importlib import import_module

from benchmarks.benchmark import Benchmark

MODULES = {
    "cake": "benchmarks.cake",
    "conversation": "benchmarks.conversation",
    "decode": "benchmarks.decode",
    "engines": "benchmarks.engines",
    "index_scale": "benchmarks.index_scale",
    "peers": "benchmarks.peers",
    "restore": "benchmarks.restore",
    "storage": "benchmarks.storage",
    "tiering": "benchmarks.tiering",
    "vllm": "benchmarks.vllm",
}
"""Every module has a ``BENCHMARK``."""

_KIT = ("benchmarks/core_split.py", "benchmarks/kit")
_STORE = ("kvstored", "client/kvstored_client", "protos")
_RUNNER = (
    "engine_adapters/chunk_codec.py",
    "engine_adapters/codecs",
    "engine_adapters/reading",
    "engine_adapters/restore",
    "engine_adapters/runner",
)

CODE = {
    "cake": ("benchmarks/cake", *_KIT, *_RUNNER, *_STORE),
    "cake simulate": ("benchmarks/cake", "engine_adapters/restore"),
    "conversation": ("benchmarks/conversation.py", *_KIT, *_RUNNER, *_STORE),
    "decode": ("benchmarks/decode", *_KIT, *_RUNNER, *_STORE),
    "engines": ("benchmarks/engines.py", "benchmarks/fio.py", "kvstored/io", "kvstored/format"),
    "index_scale": ("benchmarks/index_scale", *_KIT, *_STORE),
    "peers": ("benchmarks/peers", *_KIT, "benchmarks/store_session.py", *_STORE),
    "restore": ("benchmarks/restore", *_KIT, *_RUNNER, *_STORE),
    "restore simulate": ("benchmarks/restore", "engine_adapters/restore"),
    "storage": ("benchmarks/storage", *_KIT, "benchmarks/store_session.py", *_STORE),
    "tiering": ("benchmarks/tiering", "kvstored/tiers/policy"),
    "vllm": ("benchmarks/vllm", *_KIT, "engine_adapters/restore", "engine_adapters/vllm", *_STORE),
    "examples.conversation": ("examples/conversation", *_RUNNER, *_STORE),
    "tests.faults.clients": ("tests/faults/clients", *_STORE),
    "tests.faults.index": ("tests/faults/index", "kvstored/store", "kvstored/format"),
    "tests.faults.kill": ("tests/faults/kill", *_STORE),
    "tests.faults.media": ("tests/faults/media", "kvstored", "protos"),
    "tests.faults.memory": ("tests/faults/memory", *_STORE),
    "tests.faults.power": ("tests/faults/power", "kvstored", "protos"),
    "tests.stages": ("tests", "benchmarks", "examples", "engine_adapters", *_STORE),
}
"""Files and folders whose change makes a result old: of a benchmark, of one part of it that
describes less, and of other programs that write results, by their module."""


def find_benchmark(name: str) -> Benchmark:
    """The benchmark of this name; raises KeyError for a name that is not in MODULES."""
    benchmark = import_module(MODULES[name]).BENCHMARK
    assert isinstance(benchmark, Benchmark)
    return benchmark


def described_code(program: str, parts: Sequence[str] = ()) -> tuple[str, ...]:
    """What a result of ``program``, or of these parts of it, describes.

    Paths begin at the repository's root. Raises KeyError for a program that is not in CODE.
    """
    of_parts = [CODE.get(f"{program} {part}", CODE[program]) for part in parts]
    return tuple(dict.fromkeys(path for paths in of_parts or [CODE[program]] for path in paths))
