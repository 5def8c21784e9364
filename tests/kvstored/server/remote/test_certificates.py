"""Which certificates are taken, and when they are read again."""

import logging
import shutil
import subprocess
from pathlib import Path

import pytest

from kvstored.server.remote.certificates import (
    CertificateError,
    CertificateFiles,
    RenewedCertificates,
    read_certificates,
)
from tests.support.certificates import Authority, needs_openssl

pytestmark = needs_openssl


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def files(authority: Authority, tmp_path: Path) -> CertificateFiles:
    pair = authority.signed("server", name="server.example")
    found = CertificateFiles(
        certificate=tmp_path / "server.crt",
        private_key=tmp_path / "server.key",
        client_authorities=tmp_path / "callers.crt",
    )
    shutil.copy(pair.certificate, found.certificate)
    shutil.copy(pair.private_key, found.private_key)
    found.private_key.chmod(0o600)
    shutil.copy(authority.own.certificate, found.client_authorities)
    return found


def test_files_that_fit_together(files: CertificateFiles) -> None:
    found = read_certificates(files)
    assert found.certificate == files.certificate.read_bytes()
    assert found.private_key == files.private_key.read_bytes()
    assert found.client_authorities == files.client_authorities.read_bytes()


@pytest.mark.parametrize("name", ["certificate", "private_key", "client_authorities"])
def test_a_file_that_is_missing_or_nonsense_is_named(files: CertificateFiles, name: str) -> None:
    path: Path = getattr(files, name)
    path.write_text("nonsense")
    with pytest.raises(CertificateError, match=f"remote.{name} "):
        read_certificates(files)
    path.unlink()
    with pytest.raises(CertificateError, match=f"remote.{name} .*No such file"):
        read_certificates(files)


def test_a_key_of_another_certificate(files: CertificateFiles, authority: Authority) -> None:
    shutil.copy(authority.own.private_key, files.private_key)
    with pytest.raises(CertificateError, match="fit together"):
        read_certificates(files)


def test_a_key_that_others_can_read(files: CertificateFiles) -> None:
    files.private_key.chmod(0o640)
    with pytest.raises(CertificateError, match="chmod 600"):
        read_certificates(files)


def test_a_key_with_a_password_is_refused_and_nobody_is_asked(files: CertificateFiles) -> None:
    locked = files.private_key.with_suffix(".locked")
    subprocess.run(
        [
            "openssl",
            "ec",
            "-aes256",
            "-passout",
            "pass:x",
            "-out",
            locked,
            "-in",
            files.private_key,
        ],
        check=True,
        capture_output=True,
    )
    locked.chmod(0o600)
    locked.rename(files.private_key)
    with pytest.raises(CertificateError, match="no password"):
        read_certificates(files)


def test_they_are_read_again_when_a_file_changed(
    files: CertificateFiles, authority: Authority
) -> None:
    renewed = RenewedCertificates(files)
    assert renewed.changed() is None
    other = authority.signed("other", name="server.example")
    new = shutil.copy(other.certificate, files.certificate.with_suffix(".new"))
    Path(new).replace(files.certificate)
    # Half of the change: the key does not fit yet.
    assert renewed.changed() is None
    shutil.copy(other.private_key, files.private_key)
    assert renewed.changed() is not None
    assert renewed.changed() is None


def test_what_cannot_be_used_is_said_once(
    files: CertificateFiles, caplog: pytest.LogCaptureFixture
) -> None:
    renewed = RenewedCertificates(files)
    files.certificate.unlink()
    with caplog.at_level(logging.ERROR):
        assert renewed.changed() is None
        assert renewed.changed() is None
    (record,) = caplog.records
    assert "the certificates stay as they were: remote.certificate" in record.getMessage()
