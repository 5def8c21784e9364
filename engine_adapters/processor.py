"""Processors that promise more than they do: torch must not use their tiles.

Some virtual machines announce AMX, whose instructions work on tiles, but not the CPUID leaf with
the shapes of tiles. oneDNN, which multiplies matrices for torch, then loads an empty shape, and its
first product of bfloat16 ends the process with an illegal instruction. It reads its limit once,
before it makes its first kernel.
"""

import os
from collections.abc import MutableMapping
from pathlib import Path

VARIABLE = "ONEDNN_MAX_CPU_ISA"
OLDER_VARIABLE = "DNNL_MAX_CPU_ISA"
"""Another name that oneDNN takes."""
WITHOUT_TILES = "AVX512_CORE_FP16"
"""The most that oneDNN may use below AMX; it uses less where the processor has less."""
CPU_INFO = Path("/proc/cpuinfo")
TILE_LEAF = 0x1D
"""The CPUID leaf with the shapes of tiles."""
_TILES = "amx_tile"


def announces_tiles_without_shapes(cpu_info: str) -> bool:
    """Whether the first processor of ``/proc/cpuinfo`` has tiles, and no leaf with their shapes."""
    fields: dict[str, str] = {}
    for line in cpu_info.splitlines():
        name, _, value = line.partition(":")
        if not name.strip():
            break
        fields[name.strip()] = value.strip()
    level = fields.get("cpuid level", "")
    return (
        _TILES in fields.get("flags", "").split() and level.isdecimal() and int(level) < TILE_LEAF
    )


def avoid_broken_tiles(
    environment: MutableMapping[str, str] = os.environ, *, cpu_info: Path = CPU_INFO
) -> None:
    """Keeps oneDNN, in this process and its children, from tiles that cannot work.

    To be called before torch computes. A limit that the environment has already stays.
    """
    if VARIABLE in environment or OLDER_VARIABLE in environment:
        return
    try:
        text = cpu_info.read_text(encoding="utf-8")
    except OSError:
        return
    if announces_tiles_without_shapes(text):
        environment[VARIABLE] = WITHOUT_TILES
