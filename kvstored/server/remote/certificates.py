"""The certificates of the daemon, read again whenever one of their files has changed."""

import logging
import ssl
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import grpc

LOGGER = logging.getLogger(__name__)
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class CertificateError(ValueError):
    """Certificates cannot be used; one sentence names the file and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFiles:
    """PEM files: the daemon's certificate and its key, and who signs those of callers."""

    certificate: Path
    private_key: Path
    client_authorities: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """What the files hold. They fit together."""

    certificate: bytes
    private_key: bytes
    client_authorities: bytes


def read_certificates(files: CertificateFiles) -> Certificates:
    """Reads and compares them; raises CertificateError."""
    found = Certificates(
        certificate=_read(files.certificate, "remote.certificate"),
        private_key=_read(files.private_key, "remote.private_key"),
        client_authorities=_read(files.client_authorities, "remote.client_authorities"),
    )
    if files.private_key.stat().st_mode & _OTHERS:
        raise CertificateError(
            f"remote.private_key ({files.private_key}) can be read by others than its owner; "
            "chmod 600 it"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(files.certificate, files.private_key, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        raise CertificateError(
            f"remote.certificate ({files.certificate}) and remote.private_key "
            f"({files.private_key}) are no PEM files that fit together: {error}; "
            "name a certificate and its own key, which has no password"
        ) from error
    try:
        context.load_verify_locations(files.client_authorities)
    except ssl.SSLError as error:
        raise CertificateError(
            f"remote.client_authorities ({files.client_authorities}) has no certificates in PEM: "
            f"{error}; name the file of the authority that signs those of callers"
        ) from error
    return found


def _no_password() -> str:
    """OpenSSL would ask a terminal otherwise."""
    raise ValueError("the key has a password")


def _read(path: Path, key: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CertificateError(
            f"{key} ({path}) cannot be read: {error.strerror}; correct the path, or let the "
            "daemon's user read it"
        ) from error


class RenewedCertificates:
    """Gives gRPC the certificates for each handshake. gRPC asks on threads of its own.

    Files that cannot be used are named in the log once, and the last good ones stay in use.
    """

    def __init__(self, files: CertificateFiles) -> None:
        self._files = files
        self._seen = self._state()
        self._first = read_certificates(files)

    def credentials(self) -> grpc.ServerCredentials:
        """What a port of gRPC is opened with: a caller without a certificate is not heard."""
        # gRPC's types do not say that nothing new is None.
        fetch = cast("Callable[[], grpc.ServerCertificateConfiguration]", self.changed)
        return grpc.dynamic_ssl_server_credentials(
            _configuration(self._first), fetch, require_client_authentication=True
        )

    def changed(self) -> "grpc.ServerCertificateConfiguration | None":
        """What is new since the last look; None where nothing is, or nothing good."""
        state = self._state()
        if state == self._seen:
            return None
        self._seen = state
        try:
            found = read_certificates(self._files)
        except CertificateError as error:
            LOGGER.error("the certificates stay as they were: %s", error)  # noqa: TRY400 - one sentence
            return None
        LOGGER.info("read the certificates of remote callers again")
        return _configuration(found)

    def _state(self) -> tuple[object, ...]:
        """Differs when a file was written, replaced, removed, or came back."""
        return tuple(
            _state_of(path)
            for path in (
                self._files.certificate,
                self._files.private_key,
                self._files.client_authorities,
            )
        )


def _state_of(path: Path) -> tuple[int, ...] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def _configuration(found: Certificates) -> "grpc.ServerCertificateConfiguration":
    return grpc.ssl_server_certificate_configuration(
        [(found.private_key, found.certificate)], root_certificates=found.client_authorities
    )
