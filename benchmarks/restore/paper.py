"""The settings of the paper's figures 11 and 12, and what its text says of them.

The bars themselves are in pictures, so the text's ranges are what there is to compare with.
"""

from dataclasses import replace

from benchmarks.restore.calibration import BALANCE_BYTES_PER_S
from benchmarks.restore.claim import Claim, over
from benchmarks.restore.experiment import Experiment
from benchmarks.restore.platforms import A30, A100, H800, L20, RTX_4090, SSD_BYTES_PER_S
from benchmarks.restore.setting import Setting
from benchmarks.restore.shapes import LLAMA_7B, LLAMA_13B, OPT_30B, ModelShape
from engine_adapters.restore import Mode

CONTEXT_TOKENS = (1024, 2048, 4096, 8192, 16384)
DEFAULT_TESTBED = replace(A100, ssd_count=4)
_SHAPES = (LLAMA_7B, LLAMA_13B, OPT_30B)
_ASSUMED = "the share of FLOPS in use is taken from A100s and"
_WHY_GPU = {
    H800.name: f"H800: {_ASSUMED} too high; with it projecting keeps up with 64 GB/s and hidden "
    "states gain 2x over KV, while the paper's 1.77x for 13B implies about half of 990T",
    L20.name: f"L20: {_ASSUMED} too low; its nominal FLOPS are below the A30's, yet the paper "
    "names the A30 as where 7B gains least",
}
_WHY_SSDS = {
    LLAMA_13B: "13B with 4 SSDs: at 1.66x over KV, 6.08x over recomputing needs C_Token below "
    "5.9 C_H; section 3.2 says at least 6",
    OPT_30B: "30B: 6.08x over recomputing at 16 SSDs needs C_Token below 4.6 C_H where section "
    "3.2 says at least 6: on four GPUs projecting was slower (all-gather) or recomputing faster "
    "than one share of FLOPS for both allows. With 8 SSDs projecting is slower than reading by the "
    "37 GB/s of section 6.1.3, and faster by our 57",
}


def _kv(low: float, high: float | None = None, *, section: str) -> Claim:
    return over(Mode.KV, low, high, section=section)


def _recompute(low: float, high: float, *, section: str) -> Claim:
    return over(Mode.RECOMPUTE, low, high, section=section)


def _gpus() -> Experiment[Setting]:
    claims = (_kv(1.33, 1.81, section="6.2.1"), _recompute(5.04, 9.05, section="6.2.1"))
    single = {
        (LLAMA_7B, A30): 1.33,
        (LLAMA_13B, A100): 1.66,
        (LLAMA_13B, H800): 1.77,
    }
    platforms = {
        LLAMA_7B: (A30, L20, A100, RTX_4090, H800),
        LLAMA_13B: (L20, A100, H800),
        OPT_30B: (A100, H800),
    }
    return Experiment(
        key="gpus",
        title="Figure 11 a-c: GPUs, states in DRAM",
        note="history not stated: 1024 as in d-f; every platform on which a model fits, four "
        "GPUs only where NVLink joins them",
        settings=tuple(
            Setting(
                shape=shape,
                platform=platform,
                claims=claims
                + (
                    (_kv(single[shape, platform], section="6.2.1"),)
                    if (shape, platform) in single
                    else ()
                ),
                why=_WHY_GPU.get(platform.name, ""),
            )
            for shape in platforms
            for platform in platforms[shape]
        ),
    )


def _ssd_claims(shape: ModelShape, ssd_count: int) -> tuple[Claim, ...]:
    """Section 6.2.2: one SSD for each GPU; so many that projecting takes longer; all others.

    Projecting takes longer above the bandwidth of section 6.1.3, which is the paper's own: a
    range is never chosen by our costs, which it judges.
    """
    if ssd_count == shape.gpu_count:
        return _kv(2.09, 2.66, section="6.2.2"), _recompute(2.3, 6.1, section="6.2.2")
    if ssd_count * SSD_BYTES_PER_S > BALANCE_BYTES_PER_S[shape]:
        return _kv(1.33, 1.81, section="6.2.2"), _recompute(5.46, 6.08, section="6.2.2")
    return _kv(1.7, 2.6, section="6.2.2"), _recompute(2.3, 6.1, section="6.2.2")


def _ssds() -> Experiment[Setting]:
    return Experiment(
        key="ssds",
        title="Figure 11 d-f: SSDs of 6.9 GB/s, A100, history 1024",
        note="8 to 16 SSDs of 30B are DRAM in the paper; here SSDs behind four links. Ranges: one "
        "SSD for each GPU; more than the GB/s of section 6.1.3 (24, 21, 37); all others",
        settings=tuple(
            Setting(
                shape=shape,
                platform=replace(A100, ssd_count=shape.gpu_count * per_gpu),
                claims=_ssd_claims(shape, shape.gpu_count * per_gpu),
                why=_WHY_SSDS.get(shape, ""),
            )
            for shape in _SHAPES
            for per_gpu in range(1, 5)
        ),
    )


def _contexts() -> Experiment[Setting]:
    """The model is proportional to the history but for attention: one row each counts."""
    longest = CONTEXT_TOKENS[-1]
    return Experiment(
        key="contexts",
        title="Figure 11 g-i: history lengths, A100 with 4 SSDs",
        note="no range is stated for these; held against 1.33 - 2.66 over KV of all hardware "
        "(section 1), and only the longest, because reads and projections are proportional",
        settings=tuple(
            Setting(
                shape=shape,
                platform=DEFAULT_TESTBED,
                token_count=token_count,
                claims=(_kv(1.33, 2.66, section="1"),) if token_count == longest else (),
            )
            for shape in _SHAPES
            for token_count in CONTEXT_TOKENS
        ),
    )


def _scheduler() -> Experiment[Setting]:
    naive = over(Mode.NAIVE_HYBRID, 1.28, 1.42, section="6.3.1")
    skewed = over(Mode.HIDDEN, 1.35, 1.64, section="6.3.1")
    kv = _kv(1.45, 2.66, section="6.3.1")
    slower = over(Mode.KV, 0.87, section="6.3.1", of=Mode.HIDDEN)
    return Experiment(
        key="scheduler",
        title="Figure 12: the bubble-free scheduler, 7B",
        note="settings not stated: taken as A100 with 4 SSDs and with 1, and A30 with DRAM",
        settings=(
            Setting(
                label="balanced",
                shape=LLAMA_7B,
                platform=DEFAULT_TESTBED,
                claims=(naive, kv),
                why="balanced: by less than one layer of 32 counts (3 %)",
            ),
            Setting(
                label="compute-rich",
                shape=LLAMA_7B,
                platform=replace(A100, ssd_count=1),
                claims=(naive, skewed, kv),
            ),
            Setting(
                label="IO-rich",
                shape=LLAMA_7B,
                platform=A30,
                claims=(naive, skewed, kv, slower),
                why="IO-rich: the paper's hardware cannot be read; an A30 comes near its 0.87x "
                "of hidden over KV, but there figure 11 has 1.33x over KV and not 1.45x",
            ),
        ),
    )


def experiments() -> tuple[Experiment[Setting], ...]:
    """All figures, with the claims marked that our factors came from."""
    return tuple(
        replace(experiment, settings=tuple(map(_marked, experiment.settings)))
        for experiment in (_gpus(), _ssds(), _contexts(), _scheduler())
    )


def _marked(setting: Setting) -> Setting:
    """13B over KV on an A100 whose link is full gave the factor of overlap, at any history."""
    is_full = setting.platform in (A100, DEFAULT_TESTBED)
    if setting.shape is not LLAMA_13B or not is_full:
        return setting
    return replace(
        setting,
        claims=tuple(
            replace(claim, is_calibrated=claim.over is Mode.KV) for claim in setting.claims
        ),
    )
