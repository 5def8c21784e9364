"""The benchmarks by name, and the code that each result describes.

A module is imported when its benchmark is asked for.
"""

from collections.abc import Sequence
from importlib import import_module

from benchmarks.benchmark import Benchmark

MODULES = {
    "cake": "benchmarks.cake",
    "conversation": "benchmarks.conversation",
    "conversations": "benchmarks.conversations",
    "decode": "benchmarks.decode",
    "engines": "benchmarks.engines",
    "gpu": "benchmarks.gpu",
    "index_scale": "benchmarks.index_scale",
    "peers": "benchmarks.peers",
    "pic": "benchmarks.pic",
    "quality": "benchmarks.quality",
    "restore": "benchmarks.restore",
    "storage": "benchmarks.storage",
    "tiering": "benchmarks.tiering",
    "vllm": "benchmarks.vllm",
}
"""Every module has a ``BENCHMARK``."""

_KIT = (
    "benchmarks/core_split.py",
    "benchmarks/cpu_time.py",
    "benchmarks/kit",
    "benchmarks/scratch.py",
)
_TEXT = ("benchmarks/document.py",)
_ROUNDS = ("benchmarks/interleave.py",)
_DEVICES = (
    "benchmarks/fio.py",
    "benchmarks/fio_sweep.py",
    "benchmarks/huge_pages.py",
    "benchmarks/workload.py",
)
_STORE = ("kvstored", "client/kvstored_client", "protos")
_BREAKER = ("engine_adapters/breaker.py", "engine_adapters/slow_calls.py")
_READING = (
    *_BREAKER,
    "engine_adapters/chunk_codec.py",
    "engine_adapters/codecs",
    "engine_adapters/file_digests.py",
    "engine_adapters/device_copies",
    "engine_adapters/hashed_file.py",
    "engine_adapters/hints",
    "engine_adapters/layout_check.py",
    "engine_adapters/reading",
    "engine_adapters/restore",
)
_RUNNER = (
    *_READING,
    "engine_adapters/conversation",
    "engine_adapters/link",
    "engine_adapters/runner",
)
_PLANNER = ("engine_adapters/restore", "protos/kvstored_contract")
_TESTS = ("tests", "benchmarks", "examples", "engine_adapters", *_STORE)

CODE = {
    "cake": (
        *("benchmarks/cake", "benchmarks/restore"),
        *(*_TEXT, *_ROUNDS, *_KIT, *_RUNNER, *_STORE),
    ),
    "cake simulate": ("benchmarks/cake", "benchmarks/restore", *_PLANNER),
    "conversation": (
        "benchmarks/conversation.py",
        *(*_TEXT, *_ROUNDS, *_KIT, *_RUNNER, *_STORE),
    ),
    "conversations": ("benchmarks/conversations", *_TEXT, *_ROUNDS, *_KIT, *_RUNNER, *_STORE),
    "decode": ("benchmarks/decode", *_TEXT, *_KIT, *_RUNNER, *_STORE),
    "engines": (
        *("benchmarks/engines.py", "benchmarks/scratch.py", *_ROUNDS, *_DEVICES),
        *("kvstored/io", "kvstored/format", "kvstored/server/held", "kvstored/store/read"),
        *("client/kvstored_client/values.py", "protos/kvstored_contract"),
    ),
    "gpu": (
        *("benchmarks/gpu", "benchmarks/decode", "benchmarks/restore", "benchmarks/cake"),
        *("benchmarks/storage", "benchmarks/store_session.py", "benchmarks/memcpy.py"),
        *(*_TEXT, *_ROUNDS, *_DEVICES, *_KIT, *_RUNNER, *_STORE),
    ),
    "index_scale": ("benchmarks/index_scale", "benchmarks/workload.py", *_KIT, *_STORE),
    "peers": (
        *("benchmarks/peers", "benchmarks/storage", "benchmarks/store_session.py"),
        *("engine_adapters/lmcache", "engine_adapters/started_pool.py", *_BREAKER),
        *(*_ROUNDS, *_DEVICES, *_KIT, *_STORE),
    ),
    "pic": (
        *("benchmarks/pic", "benchmarks/quality", "benchmarks/training"),
        *(*_TEXT, *_ROUNDS, *_KIT, *_RUNNER, *_STORE),
    ),
    "quality": (
        *("benchmarks/quality", "benchmarks/training"),
        *(*_TEXT, *_KIT, *_RUNNER, *_STORE),
    ),
    "restore": ("benchmarks/restore", *_TEXT, *_ROUNDS, *_KIT, *_RUNNER, *_STORE),
    "restore layers_silence": ("benchmarks/restore", *_PLANNER),
    "restore simulate": ("benchmarks/restore", *_PLANNER),
    "storage": (
        *("benchmarks/storage", "benchmarks/store_session.py", "benchmarks/memcpy.py"),
        *(*_ROUNDS, *_DEVICES, *_KIT, *_STORE),
    ),
    "tiering": ("benchmarks/tiering", "kvstored/tiers/policy", "protos/kvstored_contract"),
    "vllm": (
        *(
            "benchmarks/vllm",
            "benchmarks/cake/traces.py",
            "engine_adapters/vllm",
            "engine_adapters/link",
            "engine_adapters/started_pool.py",
            "engine_adapters/weights_identity.py",
        ),
        *(*_ROUNDS, *_KIT, *_READING, *_STORE),
    ),
    "examples.conversation": (
        *("examples/conversation", "benchmarks/quality", "benchmarks/pic"),
        *("benchmarks/training", "engine_adapters/processor.py"),
        *(*_TEXT, *_KIT, *_RUNNER, *_STORE),
    ),
    "tests.faults.clients": ("tests/faults/clients", *_STORE),
    "tests.faults.index": ("tests/faults/index", "kvstored", "protos"),
    "tests.faults.kill": ("tests/faults/kill", *_STORE),
    "tests.faults.media": ("tests/faults/media", "kvstored", "protos"),
    "tests.faults.memory": ("tests/faults/memory", *_RUNNER, *_STORE),
    "tests.faults.power": ("tests/faults/power", "kvstored", "protos"),
    "tests.stages": _TESTS,
    ".ci/run": (".ci/run", "Makefile", *_TESTS),
    "pytest": _TESTS,
}
"""Files and folders whose change makes a result old: of a benchmark, of one part of it that
describes less, and of other programs that write results, by their module or script. What only
prints or names results is not among them (``benchmarks/report.py``, ``kvstored/evidence``)."""


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
