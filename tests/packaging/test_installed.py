"""A wheel and a source archive that install into empty environments, each with what it needs."""

import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.scale import Scale, at
from tests.support.waiting import PATIENCE_S, POLL_S

ROOT = Path(__file__).parents[2]
INSTALL = ("-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check")

pytestmark = at(Scale.QUICK)


def run(*command: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    # Nothing of this checkout is found by accident: no PYTHONPATH, another folder.
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={"PATH": "/usr/bin:/bin", "HOME": str(Path.home())},
        check=False,
    )


def built(folder: Path) -> Path:
    """The wheel, made from the source archive."""
    command = ("-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    answer = run(sys.executable, *command)
    assert answer.returncode == 0, answer.stderr + answer.stdout
    assert list(folder.glob("kvstored-*.tar.gz"))
    (wheel,) = folder.glob("kvstored-*.whl")
    return wheel


def environment(folder: Path, wheel: Path, extra: str) -> Path:
    """The programs of a new environment with the wheel and one extra."""
    venv.create(folder, with_pip=True)
    answer = run(folder / "bin" / "python", *INSTALL, f"kvstored[{extra}] @ {wheel.as_uri()}")
    assert answer.returncode == 0, answer.stderr
    return folder / "bin"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def client(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("client"), wheel, "client")


@pytest.fixture(scope="module")
def daemon(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("daemon"), wheel, "daemon")


@pytest.fixture
def store() -> Iterator[Path]:
    # Paths of sockets must be short.
    with tempfile.TemporaryDirectory(prefix="kvstored-", dir="/var/tmp") as folder:
        path = Path(folder)
        (path / "kvstored.toml").write_text(
            f'[store]\ndevices = ["{path}/device"]\ndevice_bytes = "72MiB"\nslab_bytes = "8MiB"\n'
            f'index = "{path}/index"\nindex_map_bytes = "64MiB"\n'
            f'[dram]\ncapacity_bytes = "16MiB"\n'
            f'[server]\nsocket = "{path}/kvstored.sock"\ngrpc_socket = "{path}/grpc.sock"\n'
        )
        yield path


def test_the_sdk_alone_stores_and_fetches_beside_a_daemon_of_another_environment(
    client: Path, daemon: Path, store: Path
) -> None:
    config = ("--config", store / "kvstored.toml")
    formatted = run(daemon / "kvstored", "format", *config, cwd=store)
    assert formatted.returncode == 0, formatted.stderr
    with (store / "log").open("wb") as log:
        served = subprocess.Popen([daemon / "kvstored", "run", *config], stderr=log, cwd=store)
    try:
        until = time.monotonic() + PATIENCE_S
        while run(daemon / "kvstored", "ping", *config, cwd=store).returncode:
            assert served.poll() is None, (store / "log").read_text()
            assert time.monotonic() < until, (store / "log").read_text()
            time.sleep(POLL_S)
        script = Path(__file__).with_name("client_alone.py")
        answer = run(client / "python", script, store / "kvstored.sock", cwd=store)
    finally:
        served.terminate()
        served.wait()
    assert answer.stdout == "imported in vain: [], equal: True\n", answer.stderr
    checked = run(daemon / "kvstored", "check", *config, cwd=store)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_command_without_the_daemons_packages_names_what_to_install(client: Path) -> None:
    answer = run(client / "kvstored", "run", cwd=client)
    assert answer.returncode == 1
    assert "install kvstored[daemon]" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_the_sdk_brings_no_framework(client: Path) -> None:
    listed = run(client / "python", "-m", "pip", "list", "--format=freeze").stdout.lower()
    names = {line.partition("==")[0].replace("_", "-") for line in listed.splitlines()}
    assert names - {"pip", "setuptools"} == {
        "grpcio",
        "kvstored",
        "numpy",
        "protobuf",
        "typing-extensions",
    }
