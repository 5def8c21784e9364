"""The container file and the DaemonSet: linted, confined, and in step with the daemon.

No image is built here, and no cluster takes the manifest.
"""

import fnmatch
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ByteSize, TypeAdapter

from kvstored.config import Config, load_config
from tests.support.scale import Scale, at

ROOT = Path(__file__).parents[2]
CONTAINER_FILE = ROOT / "deploy" / "Containerfile"
MANIFEST = ROOT / "deploy" / "kubernetes.yaml"
PROGRAMS = Path(sys.executable).parent
NUMBER = 470
"""The user and the group, inside and outside."""


def linted(program: str, *arguments: object) -> None:
    result = subprocess.run(
        [PROGRAMS / program, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


def documents() -> tuple[dict[str, Any], dict[str, Any]]:
    """The configuration and the DaemonSet."""
    first, second = yaml.safe_load_all(MANIFEST.read_text())
    assert (first["kind"], second["kind"]) == ("ConfigMap", "DaemonSet")
    return first, second


def pod() -> dict[str, Any]:
    spec: dict[str, Any] = documents()[1]["spec"]["template"]["spec"]
    return spec


def containers() -> list[dict[str, Any]]:
    return [*pod()["initContainers"], *pod()["containers"]]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    path = tmp_path / "kvstored.toml"
    path.write_text(documents()[0]["data"]["kvstored.toml"])
    return load_config(path)


def test_the_container_file_is_linted() -> None:
    linted("hadolint", CONTAINER_FILE)


def test_the_manifest_is_what_kubernetes_knows() -> None:
    linted("kubernetes-validate", "--strict", MANIFEST)


@pytest.mark.parametrize("key", ["hostIPC", "hostPID", "hostNetwork", "hostUsers", "privileged"])
def test_the_pod_has_nothing_of_the_node(key: str) -> None:
    """Without a user namespace, too: there every client would look like user 65534."""
    found = [line for line in MANIFEST.read_text().splitlines() if line.strip().startswith(key)]
    assert found == []


def test_its_containers_are_confined() -> None:
    assert pod()["securityContext"]["runAsNonRoot"] is True
    assert pod()["securityContext"]["runAsUser"] == NUMBER
    assert pod()["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in containers():
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"] == {"drop": ["ALL"]}


def test_its_user_is_that_of_the_image() -> None:
    assert f"\nUSER {NUMBER}:{NUMBER}\n" in CONTAINER_FILE.read_text()


def test_what_the_daemon_writes_is_mounted(config: Config) -> None:
    folders = {mount["mountPath"] for mount in containers()[-1]["volumeMounts"]}
    written = [*config.store.devices, config.store.index]
    written += [config.server.socket, config.server.grpc_socket]
    assert {str(path.parent) for path in written} <= folders
    volumes = {volume["name"] for volume in pod()["volumes"]}
    for container in containers():
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes


def test_probes_ask_where_monitoring_listens(config: Config) -> None:
    (port,) = containers()[-1]["ports"]
    assert config.metrics.listen == f"0.0.0.0:{port['containerPort']}"
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert containers()[-1][probe]["httpGet"]["port"] == port["name"]


def test_its_memory_holds_both_tiers_of_it(config: Config) -> None:
    """Arenas count for the daemon, which touches every page of them first."""
    limit = containers()[-1]["resources"]["limits"]["memory"]
    limit_bytes = TypeAdapter(ByteSize).validate_python(f"{limit}B")
    assert limit_bytes >= config.dram.capacity_bytes + config.server.arenas_bytes_max + 1024**3


@at(Scale.QUICK)
def test_what_the_image_is_built_from_is_enough(tmp_path: Path) -> None:
    """A wheel of the files that ``.dockerignore`` leaves has all modules of the daemon."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    kept = [line.removeprefix("!") for line in lines if line.startswith("!")]
    left_out = [line for line in lines if not line.startswith("!")]
    assert left_out == ["*", "**/__pycache__"]
    with tempfile.TemporaryDirectory() as name:
        for part in kept:
            source, target = ROOT / part, Path(name) / part
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, target)
        command = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir")
        result = subprocess.run(
            [*command, str(tmp_path), name], capture_output=True, text=True, check=False
        )
    assert result.returncode == 0, result.stdout + result.stderr
    (wheel,) = tmp_path.glob("*.whl")
    built = {name for name in zipfile.ZipFile(wheel).namelist() if name.endswith((".py", ".html"))}
    listed = subprocess.run(
        [
            "git",
            "-C",
            str(ROOT),
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
            "kvstored",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    wanted = {name for name in listed if fnmatch.fnmatch(name, "*.py") or name.endswith(".html")}
    assert wanted - built == set()
