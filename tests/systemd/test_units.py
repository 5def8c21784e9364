"""The unit files are valid, hardened, and agree with each other and with the example."""

import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path

import pytest

from kvstored.config import load_config
from tests.systemd.service import drop_ins

FOLDER = Path(__file__).parents[2] / "systemd"
EXPOSURE_MAX_TENTHS = 5

needs_systemd_analyze = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed (systemd)"
)


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """Copies of the units in which the program exists."""
    for unit in FOLDER.glob("kvstored.*"):
        text = unit.read_text().replace("/opt/kvstored/bin/kvstored", shutil.which("true") or "")
        (tmp_path / unit.name).write_text(text)
    return tmp_path


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *arguments], capture_output=True, text=True, check=False
    )


@needs_systemd_analyze
def test_units_are_valid(units: Path) -> None:
    result = analyze(
        "verify",
        "--recursive-errors=no",
        str(units / "kvstored.service"),
        str(units / "kvstored.socket"),
    )
    assert (result.returncode, result.stderr) == (0, "")


@needs_systemd_analyze
def test_the_service_is_hardened(units: Path) -> None:
    result = analyze(
        "security",
        "--offline=true",
        f"--threshold={EXPOSURE_MAX_TENTHS}",
        str(units / "kvstored.service"),
    )
    assert result.returncode == 0, result.stdout


@needs_systemd_analyze
def test_an_engine_is_ordered_after_the_store_and_does_not_need_it(units: Path) -> None:
    engine = units / "vllm.service"
    engine.write_text("[Service]\nExecStart=/bin/true\n")
    shutil.copytree(FOLDER / "vllm.service.d", units / "vllm.service.d")
    result = analyze("verify", "--recursive-errors=no", str(engine))
    assert (result.returncode, result.stderr) == (0, "")
    drop_in = unit("vllm.service.d/kvstored.conf")
    assert "kvstored.service" in drop_in["Unit"]["After"].split()
    assert "Requires" not in drop_in["Unit"]
    config = load_config(FOLDER / "kvstored.toml")
    assert drop_in["Service"]["Environment"] == f"KVSTORED_SOCKET={config.server.socket}"


@needs_systemd_analyze
def test_drop_ins_of_the_installation_are_valid(units: Path) -> None:
    assert set(drop_ins()) == {"places", "drives", "memory"}
    for name, text in drop_ins().items():
        file = units / "kvstored.service.d" / f"{name}.conf"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    result = analyze("verify", "--recursive-errors=no", str(units / "kvstored.service"))
    assert (result.returncode, result.stderr) == (0, "")


def test_the_limit_of_memory_holds_the_example() -> None:
    config = load_config(FOLDER / "kvstored.toml")
    wanted_gib = (config.dram.capacity_bytes + config.server.arenas_bytes_max) // 1024**3 + 2
    assert f"\nMemoryMax={wanted_gib}G\n" in drop_ins()["memory"]


def unit(name: str) -> ConfigParser:
    parser = ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(FOLDER / name)
    return parser


def test_peers_keep_their_identity() -> None:
    assert unit("kvstored.service").get("Service", "PrivateUsers", fallback="no") == "no"


def test_the_socket_is_where_the_daemon_and_its_clients_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = load_config(FOLDER / "kvstored.toml")
    assert unit("kvstored.socket")["Socket"]["ListenStream"] == str(config.server.socket)
    runtime = Path("/run") / unit("kvstored.service")["Service"]["RuntimeDirectory"]
    assert config.server.socket.parent == runtime
    assert config.server.grpc_socket.parent == runtime
    state = Path("/var/lib") / unit("kvstored.service")["Service"]["StateDirectory"]
    assert config.store.index.parent == state
    assert {device.parent for device in config.store.devices} == {state}
