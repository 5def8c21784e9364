"""The configuration: what it accepts, and the sentence for what it refuses."""

from pathlib import Path

import pytest

from kvstored.config import Config, ConfigError, load_config
from kvstored.io.engine import Background, Foreground
from kvstored.tiers.policy.retention import Retention, TableRetention

MINIMAL = """
[store]
devices = ["device0", "/dev/other"]
device_bytes = "1GiB"
index = "index"
"""


@pytest.fixture
def config_path(tmp_path: Path) -> Path:
    return tmp_path / "kvstored.toml"


def load(path: Path, text: str) -> Config:
    path.write_text(text)
    return load_config(path)


def sentence(path: Path, text: str) -> str:
    with pytest.raises(ConfigError) as info:
        load(path, text)
    message = str(info.value)
    assert "\n" not in message
    return message


def test_defaults_and_paths(config_path: Path) -> None:
    config = load(config_path, MINIMAL)
    assert config.store.devices == (config_path.parent / "device0", Path("/dev/other"))
    assert config.store.index == config_path.parent / "index"
    assert config.store.device_bytes == 1 << 30
    assert config.server.socket == Path("/run/kvstored/kvstored.sock")
    assert config.server.mode == 0o660
    assert config.io.device_bytes_per_s_max is None
    assert config.access.tenants == ()


def test_sizes_are_numbers_or_text(config_path: Path) -> None:
    config = load(config_path, MINIMAL + '[dram]\ncapacity_bytes = "1.5 GiB"\n')
    assert config.dram.capacity_bytes == 3 << 29
    config = load(config_path, MINIMAL + "[dram]\ncapacity_bytes = 134217728\n")
    assert config.dram.capacity_bytes == 1 << 27


def test_variables_override_the_file(config_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVSTORED_DRAM__CAPACITY_BYTES", "2GiB")
    monkeypatch.setenv("KVSTORED_STORE__DEVICES", '["one", "/two"]')
    monkeypatch.setenv("KVSTORED_SOCKET", "for clients")
    config = load(config_path, MINIMAL + '[dram]\ncapacity_bytes = "1GiB"\n')
    assert config.dram.capacity_bytes == 2 << 30
    assert config.store.devices == (config_path.parent / "one", Path("/two"))
    assert config.store.device_bytes == 1 << 30


def test_tenants(config_path: Path) -> None:
    config = load(
        config_path,
        MINIMAL
        + '[[access.tenants]]\nnamespace = "a"\nusers = ["bob", 1000]\n'
        + '[[access.tenants]]\nnamespace = "b"\ngroups = ["llm"]\n',
    )
    assert [tenant.namespace for tenant in config.access.tenants] == ["a", "b"]
    assert config.access.tenants[0].users == ("bob", 1000)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "section [store] is missing"),
        ("[store]\ndevice_bytes = '1GiB'\nindex = 'index'\n", "store.devices is missing"),
        ("a b", "not valid TOML"),
        (MINIMAL + "speed = 1\n", "store.speed is unknown"),
        ("fast = true\n" + MINIMAL, "fast is unknown"),
        (MINIMAL + "[dram]\ncapacity_bytes = '2 GB of it'\n", "'2 GB of it' is no size"),
        (MINIMAL + "[dram]\ncapacity_bytes = 0\n", "dram.capacity_bytes"),
        (MINIMAL + "[dram]\ncapacity_bytes = '1MiB'\n", "smaller than one slab"),
        (MINIMAL + "slab_bytes = '1GiB'\n", "no room for one slab"),
        (MINIMAL + "slab_bytes = '512KiB'\n", "slab_bytes must be"),
        (MINIMAL + "slab_bytes = 1048577\n", "slab_bytes must be"),
        (MINIMAL.replace('"1GiB"', "1073741825"), "device_bytes must be"),
        (MINIMAL.replace("/dev/other", "device0"), "same path twice"),
        (MINIMAL.replace('"device0", "/dev/other"', ""), "store.devices"),
        (MINIMAL + "[io]\ncommit_interval_ms = 51\n", "io.commit_interval_ms"),
        (MINIMAL + "[io]\ndepth_per_device = 0\n", "io.depth_per_device"),
        (MINIMAL + "[io]\nread_bytes_max = '8MiB'\n", "io.read_bytes_max"),
        (MINIMAL + "[io]\nengine = 'aio'\n", "'auto', 'io_uring' or 'threads'"),
        (MINIMAL + "[io]\ndevice_bytes_per_s_max = 0\n", "io.device_bytes_per_s_max"),
        (MINIMAL + "[io]\nwrite_share = 0\n", "io.write_share"),
        (MINIMAL + "[io]\nbackground_share = 1\n", "io.background_share"),
        (MINIMAL + "[io]\nprefetch_share = 0\n", "io.prefetch_share"),
        (MINIMAL + "[io]\nprefetch_share = 0.8\n", "leave nothing to reads"),
        (MINIMAL + "[dram]\nretention = 'mru'\n", "dram.retention"),
        (MINIMAL + "[io.background_shares]\nnothing = 0.1\n", "io.background_shares.nothing"),
        (MINIMAL + "[io.background_shares]\nscrub = 0.9\n", "leave nothing to reads"),
        (MINIMAL + "[io]\nwrite_share = 0.95\n", "leave nothing to reads"),
        (MINIMAL + "[io]\nwrite_cost = 0\n", "io.write_cost"),
        (MINIMAL + "[server]\nsocket_mode = '999'\n", "server.socket_mode"),
        (MINIMAL + "[server]\nsocket = '/a'\ngrpc_socket = '/a'\n", "the same path"),
        (MINIMAL + f"[server]\nsocket = '/{'x' * 107}'\n", "longer than 107"),
        (MINIMAL + "[server]\narena_bytes_max = '64GiB'\n", "is larger than"),
        (MINIMAL + "[server]\nsessions_max = 0\n", "server.sessions_max"),
        (MINIMAL + "[[access.tenants]]\nnamespace = 'a'\n", "neither users nor groups"),
        (MINIMAL + "[[access.tenants]]\nnamespace = 'a/b'\nusers = [1]\n", "access.tenants.0"),
        (MINIMAL + "[[access.tenants]]\nusers = [1]\n", "namespace is missing"),
    ],
)
def test_refused(config_path: Path, text: str, words: str) -> None:
    message = sentence(config_path, text)
    assert words in message
    assert str(config_path) in message


def test_all_mistakes_at_once(config_path: Path) -> None:
    text = MINIMAL + "[io]\ndepth = 4\nwrite_cost = 0\n[sever]\nsessions_max = 1\n"
    with pytest.raises(ConfigError) as info:
        load(config_path, text)
    lines = str(info.value).splitlines()
    assert len(lines) == 3
    assert "io.depth is unknown" in lines[1]
    assert lines[2].endswith("(did you mean server?)")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("KVSTORED_DRAM__SIZE", "1GiB", "KVSTORED_DRAM__SIZE names no known key"),
        ("KVSTORED_CACHE__SIZE", "1", "KVSTORED_CACHE__SIZE names no section"),
        ("KVSTORED_IO__DEPTH_PER_DEVICE", "many", "KVSTORED_IO__DEPTH_PER_DEVICE: io"),
        ("KVSTORED_STORE__DEVICES", "device0", "KVSTORED_STORE__DEVICES"),
    ],
)
def test_refused_variables(
    config_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: str
) -> None:
    monkeypatch.setenv(name, value)
    assert words in sentence(config_path, MINIMAL)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        load_config(tmp_path / "absent.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path)


def test_kinds_of_background_may_have_shares_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "kvstored.toml"
    path.write_text(MINIMAL + "[io.background_shares]\nscrub = 0.01\n")
    shares = load_config(path).io.schedule_policy.shares
    assert shares[Background.SCRUB] == 0.01
    assert shares[Background.PROMOTION] == pytest.approx(0.03)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("[io]\nwrite_share = 0.85\n", 0.1),
        ("[io]\nwrite_share = 0.5\nbackground_share = 0.45\n", 0.05),
        ("[io]\nwrite_share = 0.9\n[io.background_shares]\nscrub = 0.05\n", 0.02),
    ],
)
def test_large_shares_of_others_start_without_a_share_for_reads_ahead(
    config_path: Path, text: str, left: float
) -> None:
    """Such files were refused for the default of a key that they do not have."""
    shares = load(config_path, MINIMAL + text).io.schedule_policy.shares
    assert shares[Background.PREFETCH] == pytest.approx(left / 2)
    assert shares[Foreground.READ] == pytest.approx(left / 2)


def test_shares_that_leave_nothing_are_named(config_path: Path) -> None:
    """Those of the file, and no share for reads ahead that nobody wrote."""
    large = MINIMAL + "[io]\nwrite_share = 0.5\nbackground_share = 0.5\n"
    assert "write_share (0.5) and background_share (0.5) leave" in sentence(config_path, large)
    words = "write_share (0.5), prefetch_share (0.1) and background_share (0.4) leave"
    text = MINIMAL + "[io]\nwrite_share = 0.5\nprefetch_share = 0.1\nbackground_share = 0.4\n"
    assert words in sentence(config_path, text)
    words = "background_share (0.05) and background_shares ({'prefetch': 0.9}) leave"
    text = MINIMAL + "[io.background_shares]\nprefetch = 0.9\n"
    assert words in sentence(config_path, text)


def test_retention_is_chosen_by_name(tmp_path: Path) -> None:
    path = tmp_path / "kvstored.toml"
    path.write_text(MINIMAL)
    config = load_config(path)
    assert config.dram.retention is Retention.LOOK_AHEAD_DENSITY
    assert config.store.retention is TableRetention.LOOK_AHEAD
    assert config.io.schedule_policy.shares[Background.PREFETCH] == 0.1
    path.write_text(MINIMAL + "[dram]\nretention = 's3-fifo'\n[io]\nprefetch_share = 0.2\n")
    config = load_config(path)
    assert config.dram.retention is Retention.S3_FIFO
    assert config.io.schedule_policy.shares[Background.PREFETCH] == 0.2
