"""``python -m engine_adapters.runner calibrate MODEL``: measures this machine for a model."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from engine_adapters.codecs.registry import CODEC_NAMES
from engine_adapters.restore import PLANNED_TOKENS, Mode, save_profile
from engine_adapters.runner.calibrate.calibrate import QUICK, THOROUGH, Calibration, calibrate
from engine_adapters.runner.calibrate.profile_place import default_profile_path
from engine_adapters.runner.engine.engine import TOKEN_BUDGET
from engine_adapters.runner.model.fingerprint import model_fingerprint
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.model_config import DTYPES
from engine_adapters.runner.options import at_least_one
from engine_adapters.runner.states.mode_choice import choose_schedule
from engine_adapters.runner.states.state_format import CHUNK_TOKENS, StateFormat, shape_of
from kvstored_client import RAW, Client


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m engine_adapters.runner calibrate",
        description=(
            "Measures what restoring a layer costs here, and stores the profile by which "
            "modes hcache, naive_hybrid, cake and auto choose. Uses the daemon: chunks are stored, "
            "read and deleted, and a DRAM tier of up to 2 GiB is filled with them."
        ),
    )
    parser.add_argument("model", type=Path, help="Hugging Face model directory")
    parser.add_argument("--profile", type=Path, help="file to write (default: the user's cache)")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter measurements")
    parser.add_argument("--socket", help="session socket of the daemon")
    parser.add_argument("--arena-bytes", default="256MiB")
    parser.add_argument("--chunk-tokens", type=int, default=CHUNK_TOKENS)
    parser.add_argument(
        "--codec",
        choices=CODEC_NAMES,
        default=RAW,
        help="measure decoding too, for turns with this codec (default: raw, nothing to decode)",
    )
    parser.add_argument(
        "--history-tokens",
        type=at_least_one,
        default=PLANNED_TOKENS,
        help="length of the histories that are expected: what the runner's modes store is the best "
        f"for it (default: {PLANNED_TOKENS}, or the model's positions if they are fewer)",
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=DTYPES, help="default: the model's")
    parser.add_argument("--threads", type=at_least_one, help="CPU threads of torch")
    parser.add_argument(
        "--token-budget", type=at_least_one, default=TOKEN_BUDGET, help="tokens per step"
    )
    parser.add_argument("--json", action="store_true", help="report as one JSON object")
    return parser


def describe(
    model: Model, calibration: Calibration, path: Path, *, chunk_tokens: int
) -> dict[str, object]:
    """The report as JSON values; microseconds of one token in one layer, and schedules.

    Costs and schedules are those of turns with the codec that was measured.
    """
    profile = calibration.profile
    shape = shape_of(model)
    whole = StateFormat.of_model(model, profile.model, chunk_tokens=chunk_tokens)
    planned = profile.moving(whole.encoded(profile.codec).moved_share)
    costs = planned.costs(1024, codec=profile.codec)
    return {
        "profile": str(path),
        "machine": profile.machine,
        "hidden_token_bytes": profile.hidden_bytes,
        "kv_token_bytes": profile.kv_bytes,
        "reads_are_cold": calibration.is_cold,
        "compute_spread": profile.compute_spread,
        "read_spread": profile.read_spread,
        "decode_spread": calibration.decode_spread,
        "read_gb_per_s": profile.read_bytes_per_s / 1e9,
        "codec": profile.codec,
        "decode_hidden_us_per_token": profile.decode_hidden_token_s * 1e6,
        "decode_kv_us_per_token": profile.decode_kv_token_s * 1e6,
        "planned_tokens": profile.planned_tokens,
        **{name: seconds * 1e6 / 1024 for name, seconds in _token_costs(asdict(costs)).items()},
        **{
            str(mode): str(
                choose_schedule(
                    mode, shape, planned, now_s=time.time(), codec=profile.codec
                ).schedule
            )
            for mode in (Mode.HCACHE, Mode.NAIVE_HYBRID, Mode.CAKE, Mode.AUTO)
        },
    }


def _token_costs(costs: dict[str, float]) -> dict[str, float]:
    return {f"{name.removesuffix('_s')}_us_per_token": seconds for name, seconds in costs.items()}


def run(arguments: Sequence[str]) -> None:
    """Measures, writes the profile and a report.

    Raises ModelError, CalibrationError, CodecError, OSError, or ValueError for an option of the
    client.
    """
    options = make_parser().parse_args(arguments)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    dtype = None if options.dtype is None else getattr(torch, options.dtype)
    model = Model.from_directory(options.model, dtype=dtype, device=options.device)
    fingerprint = model_fingerprint(options.model, model.config)
    with Client(options.socket, arena_bytes=options.arena_bytes, name="calibrate") as client:
        calibration = calibrate(
            model,
            fingerprint,
            client,
            step_tokens=options.token_budget,
            chunk_tokens=options.chunk_tokens,
            codec=options.codec,
            planned_tokens=options.history_tokens,
            effort=QUICK if options.quick else THOROUGH,
        )
    path = options.profile or default_profile_path(model, fingerprint)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_profile(path, calibration.profile)
    fields = describe(model, calibration, path, chunk_tokens=options.chunk_tokens)
    if options.json:
        sys.stdout.write(json.dumps(fields) + "\n")
    else:
        sys.stdout.write("".join(f"{name}: {value}\n" for name, value in fields.items()))
