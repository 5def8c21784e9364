"""Tables 3 to 7 of Cake (ICML 2025), typed in, and the settings that they share.

Every cell holds two speed-ups of Cake: over loading alone, over computing alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.cake.platforms import (
    A100,
    GPUS_BY_NAME,
    LLAMA_8B,
    LLAMA_70B,
    LONG_ALPACA_7B,
    LONG_ALPACA_13B,
)
from benchmarks.cake.workload import FULL_BITS, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell(Workload):
    """One setting of a table and the paper's two speed-ups in it."""

    labels: tuple[str, ...]
    over_load: float
    over_compute: float
    bits: int = FULL_BITS


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperTable:
    """One table; ``columns`` name the labels of its cells."""

    number: int
    title: str
    columns: tuple[str, ...]
    cells: tuple[Cell, ...]


def _pairs(lines: str) -> Iterator[tuple[list[str], list[tuple[float, float]]]]:
    """For each line the words that are not pairs of numbers, and the pairs."""
    for line in lines.strip().splitlines():
        words = line.split()
        pairs = [word.split("\\") for word in words if "\\" in word]
        yield (
            [word for word in words if "\\" not in word],
            [(float(first), float(second)) for first, second in pairs],
        )


def _share(text: str) -> float:
    return float(text.removesuffix("%")) / 100


def _table3() -> PaperTable:
    speeds = (7, 25, 32, 56, 100)
    lines = r"""
        2xA100 12.5% 1.87\2.18 1.25\5.06 1.18\6.12 1.09\9.54  1.04\15.27
        2xA100 50%   4.57\1.29 2.07\2.03 1.80\2.24 1.46\3.06  1.30\4.62
        2xA100 87.5% 7.22\1.15 2.75\1.53 2.36\1.67 1.83\2.17  1.50\3.02
        2xA100 100%  8.10\1.10 3.03\1.43 2.63\1.59 1.97\2.00  1.54\2.64
        A100   12.5% 1.57\2.85 1.14\7.22 1.10\8.95 1.03\14.06 1.02\23.59
        A100   50%   3.35\1.46 1.68\2.55 1.55\3.01 1.30\4.26  1.17\6.48
        A100   87.5% 5.05\1.26 2.18\1.88 1.90\2.10 1.56\2.91  1.30\4.07
        A100   100%  5.62\1.21 2.41\1.81 2.00\1.91 1.69\2.71  1.30\3.52
        H100   12.5% 1.74\2.40 1.21\5.80 1.13\6.90 1.08\11.08 1.05\18.24
        H100   50%   4.13\1.38 1.94\2.25 1.72\2.55 1.45\3.62  1.27\5.34
        H100   87.5% 6.23\1.17 2.53\1.66 2.23\1.86 1.74\2.44  1.50\3.54
        H100   100%  7.13\1.17 2.74\1.56 2.40\1.75 1.84\2.25  1.49\3.08
    """
    cells = [
        Cell(
            labels=(gpus, share, f"{speed} Gbps"),
            over_load=over_load,
            over_compute=over_compute,
            gpus=GPUS_BY_NAME[gpus],
            gbit_per_s=speed,
            share=_share(share),
        )
        for (gpus, share), pairs in _pairs(lines)
        for speed, (over_load, over_compute) in zip(speeds, pairs, strict=True)
    ]
    return _made(
        3, "13B, 16k tokens: bandwidth and utilisation", ("gpus", "share", "bandwidth"), cells
    )


def _table4() -> PaperTable:
    models = (LONG_ALPACA_7B, LONG_ALPACA_13B)
    lines = r"""
        64   1.47\3.47 1.47\3.55
        128  1.83\2.40 1.79\2.45
        256  2.06\2.09 1.96\2.20
        512  2.20\1.94 2.03\1.91
        1024 2.15\1.70 2.18\1.91
        2048 2.31\1.71 2.04\1.70
    """
    cells = [
        Cell(
            labels=(f"chunk {step_tokens}", model.name),
            over_load=over_load,
            over_compute=over_compute,
            gpus=A100,
            model=model,
            gbit_per_s=32,
            step_tokens=int(step_tokens),
        )
        for (step_tokens,), pairs in _pairs(lines)
        for model, (over_load, over_compute) in zip(models, pairs, strict=True)
    ]
    return _made(4, "A100, 32 Gbps, 16k tokens: chunk sizes", ("chunk", "model"), cells)


def _table5() -> PaperTable:
    lengths = (4, 8, 12, 16)
    lines = r"""
        2xA100 7Gbps  12.5% 2.02\1.83 1.97\1.95 1.94\2.09 1.87\2.18
        2xA100 7Gbps  50%   4.75\1.08 4.97\1.21 4.71\1.24 4.57\1.29
        2xA100 7Gbps  87.5% 7.31\1.00 7.49\1.06 7.61\1.15 7.22\1.15
        2xA100 7Gbps  100%  9.06\0.99 8.65\1.04 8.43\1.08 8.10\1.10
        2xA100 32Gbps 12.5% 1.13\4.41 1.19\5.17 1.19\5.68 1.18\6.12
        2xA100 32Gbps 50%   1.68\1.64 1.87\1.99 1.80\2.09 1.80\2.24
        2xA100 32Gbps 87.5% 2.47\1.45 2.45\1.52 2.49\1.66 2.36\1.67
        2xA100 32Gbps 100%  2.67\1.25 2.73\1.43 2.69\1.52 2.63\1.59
        A100   7Gbps  12.5% 1.62\2.30 1.59\2.47 1.58\2.67 1.57\2.85
        A100   7Gbps  50%   3.58\1.27 3.48\1.32 3.45\1.41 3.35\1.46
        A100   7Gbps  87.5% 5.36\1.12 5.18\1.15 5.17\1.21 5.05\1.26
        A100   7Gbps  100%  6.31\1.11 5.95\1.13 5.66\1.15 5.62\1.21
        A100   32Gbps 12.5% 1.04\6.37 1.06\7.20 1.08\8.04 1.10\8.95
        A100   32Gbps 50%   1.38\2.10 1.49\2.48 1.50\2.71 1.55\3.01
        A100   32Gbps 87.5% 1.83\1.65 1.93\1.87 1.91\1.97 1.90\2.10
        A100   32Gbps 100%  2.06\1.55 2.15\1.79 2.00\1.79 2.00\1.91
    """
    cells = [
        Cell(
            labels=(gpus, speed, share, f"{length}k"),
            over_load=over_load,
            over_compute=over_compute,
            gpus=GPUS_BY_NAME[gpus],
            gbit_per_s=float(speed.removesuffix("Gbps")),
            share=_share(share),
            tokens=length * 1024,
        )
        for (gpus, speed, share), pairs in _pairs(lines)
        for length, (over_load, over_compute) in zip(lengths, pairs, strict=True)
    ]
    return _made(5, "13B: sequence lengths", ("gpus", "bandwidth", "share", "tokens"), cells)


def _table6() -> PaperTable:
    models = (LONG_ALPACA_7B, LONG_ALPACA_13B, LLAMA_8B, LLAMA_70B)
    lines = r"""
        12.5% 7Gbps  1.92\2.15 1.87\2.18 1.20\5.56  0.99\12.92
        12.5% 32Gbps 1.20\5.98 1.18\6.12 0.98\19.47 0.80\44.26
        50%   7Gbps  4.79\1.30 4.57\1.29 1.88\2.13  1.25\3.99
        50%   32Gbps 1.85\2.22 1.80\2.24 1.13\5.42  0.91\12.24
        100%  7Gbps  8.55\1.10 8.10\1.10 2.81\1.52  1.66\2.64
        100%  32Gbps 2.79\1.60 2.63\1.59 1.37\3.18  1.02\6.86
    """
    cells = [
        Cell(
            labels=(share, speed, model.name),
            over_load=over_load,
            over_compute=over_compute,
            model=model,
            gbit_per_s=float(speed.removesuffix("Gbps")),
            share=_share(share),
        )
        for (share, speed), pairs in _pairs(lines)
        for model, (over_load, over_compute) in zip(models, pairs, strict=True)
    ]
    return _made(6, "2xA100, 16k tokens: models", ("share", "bandwidth", "model"), cells)


def _table7() -> PaperTable:
    widths = (16, 8, 3)
    lines = r"""
        7Gbps  8.10\1.10 4.63\1.22 2.39\1.63
        25Gbps 3.03\1.43 2.07\1.87 1.41\3.09
        32Gbps 2.63\1.59 1.85\2.12 1.37\3.73
        56Gbps 1.97\2.00 1.49\2.85 1.26\5.38
    """
    cells = [
        Cell(
            labels=(speed, f"{bits} bits"),
            over_load=over_load,
            over_compute=over_compute,
            gbit_per_s=float(speed.removesuffix("Gbps")),
            bits=bits,
        )
        for (speed,), pairs in _pairs(lines)
        for bits, (over_load, over_compute) in zip(widths, pairs, strict=True)
    ]
    return _made(7, "13B, 2xA100, 16k tokens: compression", ("bandwidth", "width"), cells)


def _made(number: int, title: str, columns: tuple[str, ...], cells: Sequence[Cell]) -> PaperTable:
    return PaperTable(number=number, title=title, columns=columns, cells=tuple(cells))


TABLES = (_table3(), _table4(), _table5(), _table6(), _table7())
