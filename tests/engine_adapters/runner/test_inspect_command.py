"""What the runner tells of a model's states before anything is stored."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from engine_adapters.restore import CostProfile, save_profile
from engine_adapters.runner import inspect_command
from engine_adapters.runner.model.config_file import read_config
from engine_adapters.runner.model.errors import ModelError


def profile(*, hidden_bytes: int, kv_bytes: int) -> CostProfile:
    """Reading and projecting hidden states take as long."""
    return CostProfile(
        model="any",
        machine="any",
        measured_at_s=1.0,
        hidden_bytes=hidden_bytes,
        kv_bytes=kv_bytes,
        compute_token_s=6e-6,
        project_token_s=1e-6,
        read_bytes_per_s=hidden_bytes * 1e6,
    )


def test_both_sizes_and_every_mode(
    directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = read_config(directory)
    hidden_bytes = config.hidden_size * 4
    kv_bytes = 2 * config.kv_head_count * config.head_dim * 4
    inspect_command.run([str(directory), "--json"])
    fields = json.loads(capsys.readouterr().out)
    assert fields["hidden_token_bytes"] == hidden_bytes
    assert fields["kv_token_bytes"] == kv_bytes
    assert fields["kv"] == f"{config.layer_count} KV, {config.layer_count * kv_bytes} bytes a token"
    assert fields["hcache"] == "not calibrated"
    file = tmp_path / "profile.json"
    save_profile(file, profile(hidden_bytes=hidden_bytes, kv_bytes=4 * hidden_bytes))
    inspect_command.run([str(directory), "--profile", str(file)])
    assert f"hcache: {config.layer_count} H, " in capsys.readouterr().out


def test_grouped_heads_whose_hidden_states_are_larger_are_kept_as_kv(directory: Path) -> None:
    config = replace(read_config(directory), hidden_size=4096, kv_head_count=8, head_dim=128)
    fields = inspect_command.describe(config, profile(hidden_bytes=16384, kv_bytes=8192))
    assert (fields["hidden_token_bytes"], fields["kv_token_bytes"]) == (16384, 8192)
    assert fields["smaller"] == "kv"
    for mode in ("hcache", "auto"):
        assert " H" not in str(fields[mode])


def test_no_model_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config\.json"):
        inspect_command.run([str(tmp_path)])
