"""Measures a machine for a model (HCache, section 4.1.2: the offline profiling)."""

import time
from dataclasses import dataclass

from engine_adapters.restore import PLANNED_TOKENS, CostProfile
from engine_adapters.runner.compute_costs import ComputeTimer
from engine_adapters.runner.decode_costs import DecodeTimer
from engine_adapters.runner.model import Model
from engine_adapters.runner.profile_place import machine_name
from engine_adapters.runner.read_costs import ReadTimer
from engine_adapters.runner.state_format import CHUNK_TOKENS, shape_of
from kvstored_client import RAW, Client


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Token counts that are measured, and how often each."""

    token_counts: tuple[int, ...]
    repeats: int


THOROUGH = Effort(token_counts=(256, 1024, 2048, 4096), repeats=5)
QUICK = Effort(token_counts=(256, 1024), repeats=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A profile, and whether its reads came from the devices alone (else from DRAM too)."""

    profile: CostProfile
    is_cold: bool


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
    timer = ComputeTimer(model, repeats=effort.repeats)
    decode = DecodeTimer(model, repeats=effort.repeats).measure(codec, chunk_tokens=chunk_tokens)
    # Hidden states and KV differ in their bytes only: one line serves both.
    token_bytes = max(shape.hidden_bytes, shape.kv_bytes)
    read = ReadTimer(client).measure(
        token_bytes, counts, chunk_tokens=chunk_tokens, repeats=effort.repeats
    )
    profile = CostProfile.fitted(
        model=fingerprint,
        machine=machine_name(model.device),
        measured_at_s=time.time(),
        hidden_bytes=shape.hidden_bytes,
        kv_bytes=shape.kv_bytes,
        compute=timer.recompute(counts, step_tokens=step_tokens),
        project=timer.project(counts),
        load=timer.load(counts, chunk_tokens=chunk_tokens),
        read=read.samples,
        codec=codec,
        decode_hidden_token_s=decode.hidden_token_s,
        decode_kv_token_s=decode.kv_token_s,
        planned_tokens=planned_tokens,
    )
    return Calibration(profile=profile, is_cold=read.is_cold)
