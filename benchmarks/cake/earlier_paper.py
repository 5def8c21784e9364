"""What the earlier version of Cake's paper says of its evaluation, beside our simulation. Pure.

It has another model (7B), other bandwidths and lengths than the cells that our costs come from,
and nothing here is fitted to it: it shows whether those costs hold elsewhere. Its figures are
pictures, so the numbers of its text (sections 5.2 to 5.4) are what there is to compare with.
"""

from collections.abc import Iterable

from benchmarks.cake.calibration import Calibration
from benchmarks.cake.platforms import A100, H100, LONG_ALPACA_7B, Gpus
from benchmarks.cake.statement import PERCENT, Statement, Unit
from benchmarks.cake.virtual_workload import Simulated, simulate_workload
from benchmarks.cake.workload import FULL_BITS, Workload

GBIT_PER_S = (2.0, 5.0, 10.0)
"""Section 5.2; sections 5.3 and 5.4 say 2 to 10 Gbps and are taken at the same three."""
SHARES = (0.1, 0.5, 0.9)
"""Of the GPU (section 5.3 and appendix C)."""
SHORT_TOKENS, SHARED_TOKENS, LONG_TOKENS = 2 * 1024, 14 * 1024, 32 * 1024
CODED_BITS = {"int8": FULL_BITS / 2, "cachegen": FULL_BITS / 8.6}
"""Section 5.4: fetching takes 2 and 8.6 times less in theory. Decoding costs nothing here."""
_CODEC_TEXT = {"int8": "8 bit", "cachegen": "CacheGen"}


def statements(calibration: Calibration) -> tuple[Statement, ...]:
    """All of them, in the paper's order."""
    return (
        *_of_full_gpu(A100, calibration, of_load=(76.9, 93.5), of_compute=31.5),
        *_of_full_gpu(H100, calibration, of_load=(80.2, 94.6), of_compute=26.7),
        *_of_lengths(calibration),
        *_of_shares(calibration),
        *_of_codecs(calibration),
    )


def _workload(
    *,
    gpus: Gpus = A100,
    gbit_per_s: float,
    tokens: int,
    share: float = 1.0,
    bits: float = FULL_BITS,
) -> Workload:
    return Workload(
        gpus=gpus,
        model=LONG_ALPACA_7B,
        gbit_per_s=gbit_per_s,
        tokens=tokens,
        share=share,
        bits=bits,
    )


def _saved_of_load(runs: Iterable[Simulated]) -> tuple[float, ...]:
    """Least and most, in percent."""
    saved = [PERCENT * (1 - 1 / run.over_load) for run in runs]
    return min(saved), max(saved)


def _saved_of_compute(runs: Iterable[Simulated]) -> tuple[float, ...]:
    saved = [PERCENT * (1 - 1 / run.over_compute) for run in runs]
    return min(saved), max(saved)


def _of_full_gpu(
    gpus: Gpus, calibration: Calibration, *, of_load: tuple[float, float], of_compute: float
) -> tuple[Statement, ...]:
    """Section 5.2, figure 5a."""
    runs = [
        simulate_workload(
            _workload(gpus=gpus, gbit_per_s=gbit_per_s, tokens=LONG_TOKENS), calibration
        )
        for gbit_per_s in GBIT_PER_S
    ]
    return (
        Statement(
            key=f"{gpus.name.lower()}_saved_of_load",
            section="5.2",
            text=f"{gpus.name}, 32k: than loading alone",
            unit=Unit.SAVED,
            paper=of_load,
            ours=_saved_of_load(runs),
        ),
        Statement(
            key=f"{gpus.name.lower()}_saved_of_compute",
            section="5.2",
            text=f"{gpus.name}, 32k: than computing alone, at most",
            unit=Unit.SAVED,
            paper=(of_compute,),
            ours=_saved_of_compute(runs)[1:],
        ),
    )


def _of_lengths(calibration: Calibration) -> tuple[Statement, ...]:
    """Section 5.2, figure 5b: from 2k to 32k tokens on a whole A100 at 10 Gbps."""
    short, long = (
        simulate_workload(_workload(gbit_per_s=GBIT_PER_S[-1], tokens=tokens), calibration)
        for tokens in (SHORT_TOKENS, LONG_TOKENS)
    )
    short_share, long_share = (
        PERCENT * run.computed_tokens / tokens
        for run, tokens in ((short, SHORT_TOKENS), (long, LONG_TOKENS))
    )
    time_share = PERCENT * (1 / short.over_compute - 1 / long.over_compute)
    return (
        Statement(
            key="share_computed",
            section="5.2",
            text="A100, 10 Gbps, 32k: tokens computed",
            unit=Unit.SHARE,
            paper=(75.0,),
            ours=(long_share,),
        ),
        Statement(
            key="share_computed_falls",
            section="5.2",
            text="the same, 2k less 32k",
            unit=Unit.SHARE,
            paper=(10.0,),
            ours=(short_share - long_share,),
        ),
        Statement(
            key="time_over_compute_falls",
            section="5.2",
            text="the same of time over computing alone",
            unit=Unit.SHARE,
            paper=(15.0,),
            ours=(time_share,),
        ),
    )


def _at(share: float, calibration: Calibration, *, bits: float = FULL_BITS) -> list[Simulated]:
    """Sections 5.3 and 5.4: 14k tokens with a share of an A100, at each bandwidth."""
    return [
        simulate_workload(
            _workload(gbit_per_s=gbit_per_s, tokens=SHARED_TOKENS, share=share, bits=bits),
            calibration,
        )
        for gbit_per_s in GBIT_PER_S
    ]


def _of_shares(calibration: Calibration) -> tuple[Statement, ...]:
    """Section 5.3."""
    by_share = {share: _at(share, calibration) for share in SHARES}
    runs = [run for each in by_share.values() for run in each]
    slow, fast = by_share[SHARES[0]], by_share[SHARES[-1]]
    return (
        Statement(
            key="shared_saved_of_compute",
            section="5.3",
            text="14k, 10 to 90 % of the GPU: than computing alone",
            unit=Unit.SAVED,
            paper=(5.3, 68.1),
            ours=_saved_of_compute(runs),
        ),
        Statement(
            key="shared_saved_of_load",
            section="5.3",
            text="14k, 10 to 90 % of the GPU: than loading alone",
            unit=Unit.SAVED,
            paper=(27.4, 93.7),
            ours=_saved_of_load(runs),
        ),
        Statement(
            key="tenth_saved_of_load",
            section="5.3",
            text="14k, 10 % of the GPU: than loading alone",
            unit=Unit.SAVED,
            paper=(27.4, 65.1),
            ours=_saved_of_load(slow),
        ),
        Statement(
            key="tenth_over_nine_tenths",
            section="5.3",
            text="14k, computing alone: 10 % of the GPU over 90 %",
            unit=Unit.RATIO,
            paper=(8.22,),
            ours=(slow[0].compute_s / fast[0].compute_s,),
        ),
        Statement(
            key="tenth_less_nine_tenths",
            section="5.3",
            text="14k, computing alone: 10 % of the GPU less 90 %",
            unit=Unit.SECONDS,
            paper=(14.34,),
            ours=(slow[0].compute_s - fast[0].compute_s,),
        ),
    )


def _of_codecs(calibration: Calibration) -> tuple[Statement, ...]:
    """Section 5.4, in the settings of section 5.3."""
    raw, eight, cachegen = (
        [_at(share, calibration, bits=bits) for share in SHARES]
        for bits in (FULL_BITS, *CODED_BITS.values())
    )
    pairs = [
        (coded, plain)
        for of_coded, of_plain in zip(cachegen, raw, strict=True)
        for coded, plain in zip(of_coded, of_plain, strict=True)
    ]
    saved = [PERCENT * (1 - coded.cake_s / plain.cake_s) for coded, plain in pairs]
    loads = {
        name: max(
            plain.load_s / fast.load_s for plain, fast in zip(raw[-1], coded[-1], strict=True)
        )
        for name, coded in zip(CODED_BITS, (eight, cachegen), strict=True)
    }
    return (
        *(
            Statement(
                key=f"{name}_load",
                section="5.4",
                text=f"14k, loading alone: {_CODEC_TEXT[name]} over 16 bit, at most",
                unit=Unit.RATIO,
                paper=(paper,),
                ours=(loads[name],),
            )
            for name, paper in zip(CODED_BITS, (1.95, 7.97), strict=True)
        ),
        Statement(
            key="cachegen_over_compute",
            section="5.4",
            text="14k, 10 % of the GPU: CacheGen over computing alone",
            unit=Unit.RATIO,
            paper=(11.83,),
            ours=(cachegen[0][-1].over_compute,),
        ),
        Statement(
            key="cachegen_saved_of_raw",
            section="5.4",
            text="14k, 10 to 90 % of the GPU: CacheGen than 16 bit",
            unit=Unit.SAVED,
            paper=(32.8, 73.5),
            ours=(min(saved), max(saved)),
        ),
    )
