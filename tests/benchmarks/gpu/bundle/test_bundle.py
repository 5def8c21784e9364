"""A bundle is packed and run without a network, where Python has PyTorch and nothing else."""

import json
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from importlib.metadata import files, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from benchmarks.gpu.bundle import build
from benchmarks.gpu.bundle.contents import BYTES_MAX, closure
from tests.support import labs

SECONDS_MAX = 900.0
OWN_PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
WITHOUT_NETWORK = ("unshare", "--user", "--map-root-user", "--net")


def needed_by_torch(name: str) -> list[str]:
    parsed = (Requirement(text) for text in requires(name) or [])
    return [one.name for one in parsed if one.marker is None or one.marker.evaluate({"extra": ""})]


def top_levels(name: str) -> Iterator[str]:
    """What an installed distribution has in the folder of packages."""
    yield from {path.parts[0] for path in files(name) or () if path.parts[0] not in {"..", "bin"}}


@pytest.fixture
def python_with_torch(tmp_path: Path) -> Path:
    """An interpreter that finds PyTorch, what PyTorch needs, and nothing else."""
    environment = tmp_path / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (site,) = environment.glob("lib/python*/site-packages")
    here = Path(sysconfig.get_path("purelib"))
    for name in closure(["torch"], needed_by_torch, there=frozenset()):
        for entry in top_levels(name):
            if (here / entry).exists() and not (site / entry).exists():
                (site / entry).symlink_to(here / entry)
    return environment / "bin" / "python"


def prefix() -> tuple[str, ...]:
    """What takes the network away, where that is allowed."""
    if shutil.which(WITHOUT_NETWORK[0]) is None:
        return ()
    allowed = subprocess.run([*WITHOUT_NETWORK, "true"], check=False, capture_output=True)
    return WITHOUT_NETWORK if allowed.returncode == 0 else ()


@labs.GPU_BUNDLES.marker()
def test_a_bundle_runs_without_a_network(tmp_path: Path, python_with_torch: Path) -> None:
    """A rehearsal: the copies of a CPU and the marked tests."""
    bundle = tmp_path / "bundle"
    assert build.build(bundle, python=OWN_PYTHON) <= BYTES_MAX
    alone = subprocess.run([python_with_torch, "-c", "import numpy"], check=False)
    assert alone.returncode != 0
    words = [*prefix(), str(python_with_torch), str(bundle / "run"), "--device", "cpu"]
    words += ["--part", "copies", "--part", "tests", "--json", f"{tmp_path}/result.json"]
    done = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["commit"] != "not a git checkout"
    assert "gpu_copies_vs_pinned_min" in result["figures"]
    assert result["figures"]["gpu_tests_failed"] == 0
    assert not [key for key in result["samples"] if key.startswith("left_out")]
