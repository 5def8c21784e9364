"""Certificates that tests make by openssl: an authority, and what it signs."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

needs_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl is not installed (openssl)"
)
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key."""

    certificate: Path
    private_key: Path


class Authority:
    """Signs certificates in ``folder``."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self.own = self._pair(name)
        _openssl(
            *("req", "-x509", *_KEY, "-days", "2", "-subj", f"/CN={name}"),
            *("-keyout", self.own.private_key, "-out", self.own.certificate),
        )

    def signed(self, file: str, *, name: str, days: int = 2) -> Pair:
        """A certificate for ``name``, which is an alternative name, too; for this machine."""
        pair = self._pair(file)
        request, extensions = self._folder / f"{file}.csr", self._folder / f"{file}.ext"
        extensions.write_text(f"subjectAltName=DNS:{name},DNS:localhost,IP:127.0.0.1\n")
        _openssl(
            *("req", *_KEY, "-subj", f"/CN={name}"),
            *("-keyout", pair.private_key, "-out", request),
        )
        _openssl(
            *("x509", "-req", "-in", request, "-days", str(days), "-CAcreateserial"),
            *("-CA", self.own.certificate, "-CAkey", self.own.private_key),
            *("-extfile", extensions, "-out", pair.certificate),
        )
        return pair

    def _pair(self, file: str) -> Pair:
        return Pair(self._folder / f"{file}.crt", self._folder / f"{file}.key")


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
