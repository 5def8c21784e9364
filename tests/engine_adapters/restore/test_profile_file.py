import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from engine_adapters.restore import SPREAD_UNKNOWN, ProfileError, load_profile, save_profile
from tests.engine_adapters.restore.test_cost_profile import ENCODED, PROFILE


def test_a_profile_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    save_profile(path, PROFILE)
    save_profile(path, replace(PROFILE, machine="another"))
    assert load_profile(path) == replace(PROFILE, machine="another")
    save_profile(path, ENCODED)
    assert load_profile(path) == ENCODED
    assert [file.name for file in tmp_path.iterdir()] == ["profile.json"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"speed": 1}, "it has the unknown keys speed; calibrate again"),
        ({"kv_bytes": -4}, "kv_bytes is -4"),
        ({"compute_token_s": float("nan")}, "compute_token_s is nan"),
    ],
)
def test_a_file_that_is_not_exactly_a_profile_is_refused(
    tmp_path: Path, change: dict[str, object], words: str
) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(asdict(PROFILE) | change))
    with pytest.raises(ProfileError) as error:
        load_profile(path)
    assert str(error.value).startswith(f"the cost profile {path} cannot be used: ")
    assert words in str(error.value)


def test_a_missing_key_is_refused_even_where_it_has_a_default(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    document = asdict(PROFILE)
    del document["read_latency_s"], document["model"]
    path.write_text(json.dumps(document))
    with pytest.raises(ProfileError, match="it lacks the keys model, read_latency_s"):
        load_profile(path)


def test_a_file_from_before_codecs_were_measured_is_refused_in_one_sentence(
    tmp_path: Path,
) -> None:
    path = tmp_path / "profile.json"
    document = asdict(PROFILE)
    for name in ("codec", "decode_hidden_token_s", "decode_kv_token_s", "planned_tokens"):
        del document[name]
    path.write_text(json.dumps(document))
    with pytest.raises(ProfileError) as error:
        load_profile(path)
    assert str(error.value) == (
        f"the cost profile {path} cannot be used: it lacks the keys codec, "
        "decode_hidden_token_s, decode_kv_token_s, planned_tokens; calibrate again"
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"{", "it is not JSON"), (b"[1]", "it is not a JSON object"), (b"\xff\xfe", "decode")],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "profile.json"
    path.write_bytes(content)
    with pytest.raises(ProfileError, match=words):
        load_profile(path)


def test_a_file_that_is_not_there_is_another_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_profile(tmp_path / "profile.json")


def test_a_profile_from_before_spreads_were_measured_is_still_used(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    document = asdict(PROFILE)
    del document["compute_spread"], document["read_spread"]
    path.write_text(json.dumps(document))
    assert load_profile(path).doubt == SPREAD_UNKNOWN
