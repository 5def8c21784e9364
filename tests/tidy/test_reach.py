"""Every module of the product is on a way from what a user starts, imports or configures."""

import re
import tomllib
from collections.abc import Iterator

from tests.tidy import exceptions
from tests.tidy.reach import reached
from tests.tidy.shrinking import strays
from tests.tidy.sources import ROOT, modules

IMPORTED = ("kvstored_client", "engine_adapters.runner.ranks", "engine_adapters.transformers")
"""What users import: the SDK, the restoration into a model that they run in several processes
(HCache, section 5), and the cache for transformers."""
CONFIGURED = (
    "engine_adapters.lmcache",
    "engine_adapters.sglang.backend",
    "engine_adapters.vllm.connector",
    "engine_adapters.vllm.scheduler",
    "engine_adapters.vllm.tier",
    "engine_adapters.vllm.worker",
)
"""Paths that users of LMCache, SGLang and vLLM write into its configuration."""
BY_NAME = (
    r"kvstored\.cli(\.\w+)?\.\w+_command",
    r"kvstored_client\.testing(\.\w+)?",
    r"engine_adapters\.\w+\.testing(\.\w+)?",
    r"kvstored\.io\.faults(\.\w+)?",
    r"kvstored\.io\.(faulty|memory_device)",
)
"""Verbs, which the command imports when one is called; doubles for the tests of users and of
those who write devices and engines of their own."""


def scripts() -> Iterator[str]:
    """Modules of the commands that an installation has."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    return (target.split(":")[0] for target in project["scripts"].values())


def started() -> Iterator[str]:
    """Modules that ``python -m`` starts; no benchmark is part of the product."""
    for module, path in modules().items():
        is_started = module.endswith(".__main__") or '__name__ == "__main__"' in path.read_text()
        if is_started and not module.startswith("benchmarks"):
            yield module


def entry_points() -> set[str]:
    known = modules()
    by_name = {name for name in known if any(re.fullmatch(one, name) for one in BY_NAME)}
    return {*scripts(), *started(), *IMPORTED, *CONFIGURED, *by_name}


def test_entry_points_are_modules() -> None:
    assert entry_points() - set(modules()) == set()
    assert [one for one in BY_NAME if not any(re.fullmatch(one, name) for name in modules())] == []


def test_every_module_of_the_product_is_reached() -> None:
    known = modules()
    product = {module for module in known if not module.startswith("benchmarks")}
    assert strays(product - reached(entry_points(), known), exceptions.UNREACHED) == []
