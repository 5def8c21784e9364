"""The section ``remote`` of the configuration: what is refused, and with which sentence."""

from pathlib import Path

import pytest

from kvstored.accounts import access_rules, remote_options
from kvstored.config import ConfigError, load_config
from kvstored.config_values import TcpAddress
from tests.support.certificates import Authority, needs_openssl

STORE = '[store]\ndevices = ["device0"]\ndevice_bytes = "1GiB"\nindex = "index"\n'
WHOLE = (
    '[remote]\nlisten = "127.0.0.1:9471"\ncertificate = "server.crt"\n'
    'private_key = "server.key"\nclient_authorities = "callers.crt"\n'
)
TENANT = '[[access.tenants]]\nnamespace = "routers"\ncertificates = ["router.example"]\n'


def loaded(folder: Path, *parts: str) -> Path:
    path = folder / "kvstored.toml"
    path.write_text(STORE + "".join(parts))
    return path


def test_nothing_is_served_over_tcp_by_default(tmp_path: Path) -> None:
    config = load_config(loaded(tmp_path))
    assert config.remote.address() is None
    assert remote_options(config.remote) is None


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    config = load_config(loaded(tmp_path, WHOLE, TENANT))
    assert config.remote.address() == TcpAddress("127.0.0.1", 9471)
    assert config.remote.certificate == tmp_path / "server.crt"
    assert config.remote.private_key == tmp_path / "server.key"
    assert config.remote.client_authorities == tmp_path / "callers.crt"


def test_a_tenant_may_have_certificates_alone(tmp_path: Path) -> None:
    config = load_config(loaded(tmp_path, WHOLE, TENANT))
    (tenant,) = access_rules(config.access).tenants
    assert tenant.certificates == {"router.example"}
    assert not tenant.uids


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (WHOLE.replace("127.0.0.1:9471", "./socket"), "remote.listen: './socket' is a path"),
        (WHOLE.replace("127.0.0.1:9471", "everywhere"), "is neither HOST:PORT"),
        (WHOLE.replace("private_key", "key"), "the key remote.key is unknown"),
        ('[remote]\nlisten = "127.0.0.1:1"\n', "remote.certificate, remote.private_key, remote."),
        (
            WHOLE.replace('certificate = "server.crt"\n', ""),
            "remote.certificate is missing: without certificates of both sides",
        ),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as info:
        load_config(loaded(tmp_path, text, TENANT))
    assert sentence in str(info.value)


def test_it_is_named_beside_all_others(tmp_path: Path) -> None:
    text = WHOLE.replace("127.0.0.1:9471", "./socket") + "[dram]\ncapacity = 1\n"
    with pytest.raises(ConfigError) as info:
        load_config(loaded(tmp_path, text))
    assert len(str(info.value).splitlines()) == 2


def test_a_port_that_nobody_may_use(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="names certificates: nobody could call"):
        load_config(loaded(tmp_path, WHOLE))


def test_a_tenant_of_nobody(tmp_path: Path) -> None:
    nobody = '[[access.tenants]]\nnamespace = "routers"\n'
    with pytest.raises(ConfigError, match="neither users nor groups nor certificates"):
        load_config(loaded(tmp_path, nobody))


@needs_openssl
def test_certificates_are_read_at_the_start(tmp_path: Path) -> None:
    config = load_config(loaded(tmp_path, WHOLE, TENANT))
    with pytest.raises(ConfigError, match=r"remote\.certificate .* cannot be read"):
        remote_options(config.remote)
    authority = Authority(tmp_path, name="callers")
    authority.signed("server", name="server.example").private_key.chmod(0o600)
    options = remote_options(config.remote)
    assert options is not None
    assert options.target == "127.0.0.1:9471"


@needs_openssl
def test_an_address_of_version_6(tmp_path: Path) -> None:
    config = load_config(loaded(tmp_path, WHOLE.replace("127.0.0.1:", "[::1]:"), TENANT))
    authority = Authority(tmp_path, name="callers")
    authority.signed("server", name="server.example").private_key.chmod(0o600)
    options = remote_options(config.remote)
    assert options is not None
    assert options.target == "[::1]:9471"
