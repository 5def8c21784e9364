"""Measures a machine for a model (HCache, section 4.1.2: the offline profiling)."""

import time
from dataclasses import dataclass
from functools import partial

from engine_adapters.restore import PLANNED_TOKENS, CostProfile
from engine_adapters.runner.calibrate.compute_costs import ComputeTimer
from engine_adapters.runner.calibrate.decode_costs import DecodeTimer
from engine_adapters.runner.calibrate.profile_place import machine_name
from engine_adapters.runner.calibrate.read_costs import ReadTimer
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.states.state_format import CHUNK_TOKENS, shape_of
from kvstored_client import RAW, Client


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Token counts that are measured, how often each, and how far apart the repetitions are."""

    token_counts: tuple[int, ...]
    repeats: int
    pause_s: float


THOROUGH = Effort(token_counts=(256, 1024, 2048, 4096), repeats=5, pause_s=1.0)
QUICK = Effort(token_counts=(256, 1024), repeats=3, pause_s=0.3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A profile, and whether its reads came from the devices alone (else from DRAM too).

    ``decode_spread`` is the slowest repetition of a decoded slice over its median.
    """

    profile: CostProfile
    is_cold: bool
    decode_spread: float


def calibrate(
    model: Model,
    fingerprint: str,
    client: Client,
    *,
    step_tokens: int,
    chunk_tokens: int = CHUNK_TOKENS,
    codec: str = RAW,
    planned_tokens: int = PLANNED_TOKENS,
    effort: Effort = THOROUGH,
) -> Calibration:
    """Times recomputing, projecting, loading, reading and decoding one layer of ``model``.

    States are decoded as ``codec`` encodes them. ``planned_tokens`` is the length of the
    histories that are expected. Raises CalibrationError
    when the daemon cannot be measured, CodecError for a codec that cannot be used.
    """
    shape = shape_of(model)
    counts = tuple(sorted({min(n, shape.position_count) for n in effort.token_counts}))
    pause = partial(time.sleep, effort.pause_s)
    timer = ComputeTimer(model, repeats=effort.repeats, pause=pause)
    decode = DecodeTimer(model, repeats=effort.repeats, pause=pause).measure(
        codec, chunk_tokens=chunk_tokens
    )
    # Hidden states and KV differ in their bytes only: one line serves both.
    token_bytes = max(shape.hidden_bytes, shape.kv_bytes)
    read = ReadTimer(client, pause=pause).measure(
        token_bytes, counts, chunk_tokens=chunk_tokens, repeats=effort.repeats
    )
    recompute = timer.recompute(counts, step_tokens=step_tokens)
    project = timer.project(counts)
    load = timer.load(counts, chunk_tokens=chunk_tokens)
    profile = CostProfile.fitted(
        model=fingerprint,
        machine=machine_name(model.device),
        measured_at_s=time.time(),
        hidden_bytes=shape.hidden_bytes,
        kv_bytes=shape.kv_bytes,
        compute=recompute,
        project=project,
        load=load,
        read=read.samples,
        codec=codec,
        decode_hidden_token_s=decode.hidden_token_s,
        decode_kv_token_s=decode.kv_token_s,
        planned_tokens=planned_tokens,
        compute_spread=timer.spread,
        read_spread=read.spread,
    )
    return Calibration(profile=profile, is_cold=read.is_cold, decode_spread=decode.spread)
