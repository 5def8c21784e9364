"""A daemon started as a user starts it, by a given command and with a given environment."""

import contextlib
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.support.waiting import PATIENCE_S, POLL_S


def run(
    *command: object, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end; of this checkout it finds only what ``environment`` says."""
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        cwd="/",
        env=_whole(environment),
        check=False,
    )


@contextlib.contextmanager
def served(program: Path, environment: Mapping[str, str] | None = None) -> Iterator[Path]:
    """The socket of a daemon that ``program`` (``kvstored``) formats, serves, stops and checks."""
    # Paths of sockets must be short.
    with tempfile.TemporaryDirectory(prefix="kvstored-", dir="/var/tmp") as name:
        folder = Path(name)
        config, log = folder / "kvstored.toml", folder / "log"
        config.write_text(
            f'[store]\ndevices = ["{folder}/device"]\ndevice_bytes = "72MiB"\n'
            f'slab_bytes = "8MiB"\nindex = "{folder}/index"\nindex_map_bytes = "64MiB"\n'
            f'[dram]\ncapacity_bytes = "16MiB"\n'
            f'[server]\nsocket = "{folder}/kvstored.sock"\ngrpc_socket = "{folder}/grpc.sock"\n'
        )

        def verb(name: str) -> subprocess.CompletedProcess[str]:
            return run(program, name, "--config", config, environment=environment)

        formatted = verb("format")
        assert formatted.returncode == 0, formatted.stderr
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [program, "run", "--config", config],
                stderr=errors,
                cwd="/",
                env=_whole(environment),
            )
        try:
            until_s = time.monotonic() + PATIENCE_S
            while verb("ping").returncode:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < until_s, log.read_text()
                time.sleep(POLL_S)
            yield folder / "kvstored.sock"
        finally:
            process.terminate()
            process.wait()
        checked = verb("check")
        assert checked.returncode == 0, checked.stdout + checked.stderr


def _whole(environment: Mapping[str, str] | None) -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "HOME": str(Path.home()), **(environment or {})}
