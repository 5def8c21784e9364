"""``python -m benchmarks.gpu.bundle.build [--python 3.12] [--folder FOLDER]`` packs the bundle.

It needs a package index, and the environment that ``make setup`` makes, whose versions it packs.
"""

import argparse
import io
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from importlib.metadata import requires, version
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

from benchmarks.benchmark import BenchmarkError
from benchmarks.gpu.bundle.contents import (
    BYTES_MAX,
    ROOTS,
    closure,
    is_packed,
    is_used,
    wheel_prefix,
)
from benchmarks.gpu.bundle.start import ARCHIVE, PYTHON_FILE
from kvstored.evidence import NO_CHECKOUT
from kvstored.evidence.checkout import PACKED_COMMIT, ROOT, commit_of_tree, git, is_tree_clean

DEFAULT_FOLDER = Path("var/gpu-bundle")
WHEELS = Path("var/gpu-wheels")
"""Where what was downloaded stays, by the version of Python."""
DEFAULT_PYTHON = "3.12"
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
START = Path(__file__).with_name("start.py")
XZ_PRESET: Final = 3
"""Higher ones take minutes for a twentieth less."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Packs the folder and says how large it is; 1 where it cannot, or where it is too large."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.bundle.build")
    parser.add_argument("--python", default=DEFAULT_PYTHON, metavar="VERSION")
    parser.add_argument("--folder", type=Path, default=DEFAULT_FOLDER)
    options = parser.parse_args(arguments)
    try:
        byte_count = build(options.folder, python=options.python)
    except BenchmarkError as error:
        sys.stderr.write(f"gpu-bundle: {error}\n")
        return error.exit_status
    sys.stdout.write(
        f"{options.folder}: {byte_count / 1e6:.1f} MB for Python {options.python}; copy it to a "
        "machine with PyTorch and start its `run` there\n"
    )
    return 0


def build(folder: Path, *, python: str) -> int:
    """Fills ``folder``, whatever it had, and returns its bytes; raises BenchmarkError."""
    wheels = _downloaded(WHEELS / python, python)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copy(START, folder / "run")
    (folder / "run").chmod(0o755)
    (folder / PYTHON_FILE).write_text(f"{python}\n", encoding="ascii")
    with tarfile.open(folder / ARCHIVE, "w:xz", preset=XZ_PRESET) as archive:
        for wheel in wheels:
            _add_wheel(archive, wheel)
        _add_project(archive)
    byte_count = sum(path.stat().st_size for path in folder.iterdir())
    if byte_count > BYTES_MAX:
        raise BenchmarkError(
            f"{folder} has {byte_count / 1e6:.1f} MB, and at most {BYTES_MAX / 1e6:.0f} MB travel"
        )
    return byte_count


def _downloaded(wheels: Path, python: str) -> list[Path]:
    """The wheels of all names in the versions of this environment, for ``python``."""
    versions = {name: version(name) for name in closure(ROOTS, _required)}
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--implementation=cp", f"--python-version={python}"]
    command += [f"--platform={platform}" for platform in PLATFORMS]
    missing = {name: each for name, each in versions.items() if not _files(wheels, name, each)}
    command += [f"--dest={wheels}", *(f"{name}=={each}" for name, each in missing.items())]
    if missing:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
            raise BenchmarkError(f"pip could not download the wheels: {last[0]}")
    return [path for name, each in versions.items() for path in _files(wheels, name, each)]


def _files(wheels: Path, name: str, of_version: str) -> list[Path]:
    prefix = wheel_prefix(name, of_version).lower()
    return [path for path in wheels.glob("*.whl") if path.name.lower().startswith(prefix)]


def _required(name: str) -> list[str]:
    """Requirements of an installed distribution that hold here, without those of extras."""
    texts = requires(name) or []
    parsed = (Requirement(text) for text in texts)
    return [one.name for one in parsed if one.marker is None or one.marker.evaluate({"extra": ""})]


def _add_wheel(archive: tarfile.TarFile, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as members:
        for name in filter(is_used, members.namelist()):
            if not name.endswith("/"):
                _add(archive, f"site/{name}", members.read(name))


def _add_project(archive: tarfile.TarFile) -> None:
    """The committed files as they lie in the tree now, and the commit's name beside them."""
    listed = git("ls-files")
    if listed is None:
        raise BenchmarkError("a bundle is packed from a git checkout, and this is none")
    for name in filter(is_packed, listed.splitlines()):
        if (ROOT / name).is_file():
            _add(archive, f"project/{name}", (ROOT / name).read_bytes())
    # As if it were installed: the daemon asks for its own version.
    own = version("kvstored")
    metadata = f"Metadata-Version: 2.1\nName: kvstored\nVersion: {own}\n"
    _add(archive, f"site/kvstored-{own}.dist-info/METADATA", metadata.encode())
    commit = commit_of_tree() or NO_CHECKOUT
    changed = "" if is_tree_clean() else " with changes"
    _add(archive, f"project/{PACKED_COMMIT}", f"{commit}{changed}\n".encode())


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


if __name__ == "__main__":
    sys.exit(main())
