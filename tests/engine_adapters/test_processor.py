"""What torch may use of a processor that announces more than it has."""

import subprocess
import sys
from pathlib import Path

import pytest

from engine_adapters import processor
from engine_adapters.processor import announces_tiles_without_shapes, avoid_broken_tiles

BROKEN = "processor\t: 0\ncpuid level\t: 28\nflags\t\t: fpu amx_bf16 amx_tile\n\nprocessor\t: 1\n"


@pytest.mark.parametrize(
    ("text", "is_broken"),
    [
        (BROKEN, True),
        (BROKEN.replace("28", "29"), False),
        (BROKEN.replace("28", "unknown"), False),
        (BROKEN.replace("amx_tile", "amx_tiles"), False),
        ("processor\t: 0\n\n" + BROKEN, False),
        ("", False),
    ],
)
def test_tiles_need_a_leaf_with_their_shapes(text: str, is_broken: bool) -> None:
    assert announces_tiles_without_shapes(text) is is_broken


def test_a_limit_of_the_environment_stays(tmp_path: Path) -> None:
    cpu_info = tmp_path / "cpuinfo"
    cpu_info.write_text(BROKEN)
    for name in (processor.VARIABLE, processor.OLDER_VARIABLE):
        environment = {name: "AVX2"}
        avoid_broken_tiles(environment, cpu_info=cpu_info)
        assert environment == {name: "AVX2"}


def test_only_a_broken_processor_is_limited(tmp_path: Path) -> None:
    cpu_info = tmp_path / "cpuinfo"
    environment: dict[str, str] = {}
    avoid_broken_tiles(environment, cpu_info=cpu_info)
    assert environment == {}, "a system without that file"
    cpu_info.write_text(BROKEN.replace("28", "32"))
    avoid_broken_tiles(environment, cpu_info=cpu_info)
    assert environment == {}
    cpu_info.write_text(BROKEN)
    avoid_broken_tiles(environment, cpu_info=cpu_info)
    assert environment == {processor.VARIABLE: processor.WITHOUT_TILES}


def test_bfloat16_ends_no_process_here() -> None:
    """Bug: a product of bfloat16 ended the runner with SIGILL on such a virtual machine."""
    program = (
        "from engine_adapters.processor import avoid_broken_tiles\n"
        "avoid_broken_tiles()\n"
        "import torch\n"
        "rows = torch.ones(32, 64, dtype=torch.bfloat16)\n"
        "assert (torch.nn.functional.linear(rows, rows) == 64).all()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
