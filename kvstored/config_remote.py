"""The section of the configuration for callers on other machines."""

from pathlib import Path

from pydantic import field_validator, model_validator

from kvstored.config_values import Section, TcpAddress, address_of

FILES = ("certificate", "private_key", "client_authorities")


class RemoteSection(Section):
    """Where verbs without bulk bytes are served over TCP with mutual TLS; off by default."""

    listen: str | None = None
    """``HOST:PORT``; unset listens nowhere."""
    certificate: Path | None = None
    """PEM file with the daemon's certificate, and those between it and an authority."""
    private_key: Path | None = None
    """PEM file with its key, which nobody else may read."""
    client_authorities: Path | None = None
    """PEM file with the authorities whose certificates callers must show."""

    @field_validator("listen")
    @classmethod
    def _is_tcp(cls, value: str | None) -> str | None:
        if value is not None and isinstance(address_of(value), Path):
            raise ValueError(
                f"{value!r} is a path; write HOST:PORT, such as 10.0.0.5:9471 (on this machine "
                "clients use server.socket)"
            )
        return value

    @model_validator(mode="after")
    def _possible(self) -> "RemoteSection":
        missing = [f"remote.{name}" for name in FILES if getattr(self, name) is None]
        if self.listen is not None and missing:
            raise ValueError(
                f"listen is set, and {', '.join(missing)} "
                f"{'is' if len(missing) == 1 else 'are'} missing: without certificates of both "
                "sides nothing is served over TCP"
            )
        return self

    def address(self) -> TcpAddress | None:
        """``listen``, taken apart."""
        address = None if self.listen is None else address_of(self.listen)
        assert not isinstance(address, Path)
        return address

    def anchored(self, folder: Path) -> "RemoteSection":
        """The section with every path made absolute, from ``folder``."""
        paths = {name: getattr(self, name) for name in FILES}
        return self.model_copy(
            update={name: folder / path for name, path in paths.items() if path is not None}
        )
