"""A wheel and a source archive that install into empty environments, each with what it needs."""

import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import pytest

from tests.support import client_alone
from tests.support.scale import Scale, at
from tests.support.served import run, served

ROOT = Path(__file__).parents[2]
INSTALL = ("install", "--quiet", "--no-compile", "--disable-pip-version-check")

pytestmark = at(Scale.QUICK)


def built(folder: Path) -> Path:
    """The wheel, made from the source archive."""
    answer = run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    assert answer.returncode == 0, answer.stderr + answer.stdout
    assert list(folder.glob("kvstored-*.tar.gz"))
    (wheel,) = folder.glob("kvstored-*.whl")
    return wheel


def environment(folder: Path, wheel: Path, extra: str) -> Path:
    """The programs of a new environment with the wheel and one extra."""
    venv.create(folder)
    answer = pip(folder / "bin", *INSTALL, f"kvstored[{extra}] @ {wheel.as_uri()}")
    assert answer.returncode == 0, answer.stderr
    return folder / "bin"


def pip(programs: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Our own pip, for another environment: there it would take long to install and to compile."""
    return run(sys.executable, "-m", "pip", "--python", programs / "python", *arguments)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def client(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("client"), wheel, "client")


@pytest.fixture(scope="module")
def daemon(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("daemon"), wheel, "daemon")


def test_the_source_archive_has_what_installs_and_no_tests(wheel: Path) -> None:
    """*Bug:* names of folders were found in every folder, so that it had most tests, too."""
    (archive,) = wheel.parent.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    assert not [name for name in names if name.startswith("tests/")]
    assert {"systemd/install.sh", "docs/kvstored.1", "deploy/kubernetes.yaml"} <= names


def test_the_sdk_alone_stores_and_fetches_beside_a_daemon_of_another_environment(
    client: Path, daemon: Path
) -> None:
    with served(daemon / "kvstored") as socket:
        answer = run(client / "python", client_alone.__file__, socket)
    assert answer.stdout == "imported in vain: [], equal: True\n", answer.stderr


def test_the_command_without_the_daemons_packages_names_what_to_install(client: Path) -> None:
    answer = run(client / "kvstored", "run")
    assert answer.returncode == 1
    assert "install kvstored[daemon]" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_the_sdk_brings_no_framework(client: Path) -> None:
    listed = pip(client, "list", "--format=freeze").stdout.lower()
    names = {line.partition("==")[0].replace("_", "-") for line in listed.splitlines()}
    assert names == {
        "grpcio",
        "kvstored",
        "numpy",
        "protobuf",
        "typing-extensions",
    }
