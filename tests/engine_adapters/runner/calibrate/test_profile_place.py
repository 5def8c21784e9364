import platform
from pathlib import Path

import pytest
import torch

from engine_adapters.restore import CostProfile, ProfileError, save_profile
from engine_adapters.runner.calibrate.profile_place import (
    default_profile_path,
    find_profile,
    machine_name,
)
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.states.state_format import shape_of

FINGERPRINT = "f" * 64


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def profile_of(model: Model, fingerprint: str = FINGERPRINT, hidden_bytes: int = 0) -> CostProfile:
    shape = shape_of(model)
    return CostProfile(
        model=fingerprint,
        machine="n",
        measured_at_s=1.0,
        hidden_bytes=hidden_bytes or shape.hidden_bytes,
        kv_bytes=shape.kv_bytes,
        compute_token_s=1.0,
        project_token_s=1.0,
        read_bytes_per_s=1.0,
    )


def test_it_is_looked_for_in_the_cache_of_the_user(model: Model, cache: Path) -> None:
    assert find_profile(model, FINGERPRINT, None) is None
    path = default_profile_path(model, FINGERPRINT)
    assert path.is_relative_to(cache)
    path.parent.mkdir(parents=True)
    save_profile(path, profile_of(model))
    assert find_profile(model, FINGERPRINT, None) == profile_of(model)


@pytest.mark.parametrize("value", ["", "relative"])
def test_a_cache_that_is_none_is_ignored(
    value: str, model: Model, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    path = default_profile_path(model, FINGERPRINT)
    assert path.is_relative_to(tmp_path / "home" / ".cache" / "kvstored")


def test_models_dtypes_and_hosts_have_their_own(
    model: Model, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Model.from_directory(directory, dtype=torch.bfloat16)
    paths = {
        default_profile_path(model, FINGERPRINT),
        default_profile_path(model, "0" * 64),
        default_profile_path(other, FINGERPRINT),
    }
    monkeypatch.setattr(platform, "node", lambda: "other/host")
    paths.add(default_profile_path(model, FINGERPRINT))
    assert len(paths) == 4
    assert len({path.parent for path in paths}) == 1


def test_a_named_file_must_hold_one_of_this_model(model: Model, tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    with pytest.raises(FileNotFoundError):
        find_profile(model, FINGERPRINT, path)
    for wrong in (profile_of(model, "0" * 64), profile_of(model, hidden_bytes=7)):
        save_profile(path, wrong)
        with pytest.raises(ProfileError, match="of another model or dtype"):
            find_profile(model, FINGERPRINT, path)
    save_profile(path, profile_of(model))
    assert find_profile(model, FINGERPRINT, path) == profile_of(model)


def test_the_machine_is_named() -> None:
    assert "threads" in machine_name(torch.device("cpu"))
