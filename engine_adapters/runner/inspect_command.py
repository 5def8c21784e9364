"""``python -m engine_adapters.runner inspect MODEL``: sizes of states, and each mode's plan."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from engine_adapters.restore import CostProfile, Mode, load_profile
from engine_adapters.runner.model.config_file import read_config
from engine_adapters.runner.model.model_config import ModelConfig
from engine_adapters.runner.states.mode_choice import ModeError, choose_schedule
from engine_adapters.runner.states.state_format import shape_of_config


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m engine_adapters.runner inspect",
        description="Shows the sizes of a model's states and what each mode would store.",
    )
    parser.add_argument("model", type=Path, help="Hugging Face model directory")
    parser.add_argument("--profile", type=Path, help="costs that `calibrate` has measured")
    parser.add_argument("--json", action="store_true", help="report as one JSON object")
    return parser


def describe(config: ModelConfig, profile: CostProfile | None) -> dict[str, object]:
    """Bytes of one token in one layer of both kinds, which is smaller, and all schedules."""
    shape = shape_of_config(config, getattr(torch, config.dtype))
    fields: dict[str, object] = {
        "layers": shape.layer_count,
        "dtype": config.dtype,
        "hidden_token_bytes": shape.hidden_bytes,
        "kv_token_bytes": shape.kv_bytes,
        "smaller": "hidden" if shape.hidden_bytes < shape.kv_bytes else "kv",
    }
    if profile is not None:
        fields["profile_age_s"] = round(profile.age_s(time.time()))
    for mode in Mode:
        try:
            schedule = choose_schedule(mode, shape, profile, now_s=time.time()).schedule
        except ModeError:
            fields[str(mode)] = "not calibrated"
            continue
        stored = schedule.token_bytes(hidden_bytes=shape.hidden_bytes, kv_bytes=shape.kv_bytes)
        fields[str(mode)] = f"{schedule}, {stored} bytes a token"
    return fields


def run(arguments: Sequence[str]) -> None:
    """Writes the report; raises ModelError, ProfileError and OSError."""
    options = make_parser().parse_args(arguments)
    profile = load_profile(options.profile) if options.profile else None
    fields = describe(read_config(options.model), profile)
    if options.json:
        sys.stdout.write(json.dumps(fields) + "\n")
    else:
        sys.stdout.write("".join(f"{name}: {value}\n" for name, value in fields.items()))
