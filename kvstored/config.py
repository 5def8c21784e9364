"""The daemon's configuration: a TOML file, overridden by ``KVSTORED_*`` variables.

Pure but for reading the file and the environment. ``KVSTORED_DRAM__CAPACITY_BYTES``
overrides ``capacity_bytes`` of ``[dram]``; lists are given as JSON. Every mistake gets one
sentence that names the key and the remedy.
"""

import os
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import ByteSize, Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings.exceptions import SettingsError

from kvstored.config_mistakes import ENV_NESTING, ENV_PREFIX, mistakes_of
from kvstored.config_remote import RemoteSection
from kvstored.config_tenants import AccessSection, QuotasSection
from kvstored.config_values import (
    Account,
    Bytes,
    Section,
    Share,
    Size,
    TcpAddress,
    address_of,
)
from kvstored.format.superblock import DATA_OFFSET, SUPERBLOCK_BYTES
from kvstored.io.engine import Background
from kvstored.io.open_engine import EngineKind
from kvstored.io.schedule import BACKGROUND_DIVISION, SchedulePolicy
from kvstored.tiers.policy.retention import Retention, TableRetention
from kvstored_contract.limits import ALIGNMENT_BYTES

SOCKET_PATH_BYTES_MAX = 107
"""Longest path of a Unix socket on Linux."""
SLAB_BYTES_MIN = 1024 * 1024
INDEX_MAP_BYTES_MIN = 1024 * 1024
"""Less has no room for the pages that the commits of some hundred chunks rewrite."""
COMMIT_INTERVAL_MS_MAX = 50
DEPTH_MAX = 256
SESSIONS_MAX = 4096
WRITE_COST_MAX = 100
SCRUB_INTERVAL_S_MAX = 366 * 24 * 3600
PREFETCH_SHARE = 0.1
"""Of a busy device's time, for reads ahead, where nothing else is configured and the others leave
twice that."""

_KIB = 1024
_MIB = 1024 * _KIB
_GIB = 1024 * _MIB


class ConfigError(ValueError):
    """The configuration cannot be used; a line for each mistake names the key and the remedy."""


class StoreSection(Section):
    """The devices, in the order in which they were formatted, and the index."""

    devices: Annotated[tuple[Path, ...], Field(min_length=1)]
    device_bytes: Bytes
    """Size of each device; used by ``kvstored format`` only."""
    slab_bytes: Bytes = ByteSize(65 * _MIB)
    """Not 64: chunks of 8, 16 or 32 MiB come with a header page, and would just not fill it."""
    index: Path
    """Folder of the LMDB index."""
    index_map_bytes: Annotated[Size, Field(ge=INDEX_MAP_BYTES_MIN)] = ByteSize(16 * _GIB)
    """Address space of the index, and so its largest size."""
    retention: TableRetention = TableRetention.LOOK_AHEAD
    """What goes first when the devices are full."""

    @model_validator(mode="after")
    def _possible(self) -> "StoreSection":
        if len(set(self.devices)) != len(self.devices):
            raise ValueError("devices names the same path twice")
        if self.slab_bytes < SLAB_BYTES_MIN or self.slab_bytes % ALIGNMENT_BYTES:
            raise ValueError(
                f"slab_bytes must be a multiple of {ALIGNMENT_BYTES} of at least "
                f"{SLAB_BYTES_MIN} bytes, not {self.slab_bytes}"
            )
        if self.device_bytes % ALIGNMENT_BYTES:
            raise ValueError(f"device_bytes must be a multiple of {ALIGNMENT_BYTES}")
        room = self.device_bytes - DATA_OFFSET - SUPERBLOCK_BYTES
        if room < self.slab_bytes:
            raise ValueError(
                f"device_bytes ({self.device_bytes}) has no room for one slab of "
                f"slab_bytes ({self.slab_bytes})"
            )
        return self

    @property
    def capacity_bytes(self) -> int:
        """What the slabs of all devices hold."""
        room = self.device_bytes - DATA_OFFSET - SUPERBLOCK_BYTES
        return len(self.devices) * (room // self.slab_bytes) * self.slab_bytes


class DramSection(Section):
    """The DRAM tier."""

    capacity_bytes: Bytes = ByteSize(1 * _GIB)
    retention: Retention = Retention.LOOK_AHEAD_DENSITY
    """What goes first when it is full."""


class IoSection(Section):
    """How devices are driven and commits are grouped."""

    engine: EngineKind = EngineKind.AUTO
    """What runs the transfers; io_uring where system and devices offer it."""
    depth_per_device: Annotated[int, Field(ge=1, le=DEPTH_MAX)] = 8
    read_bytes_max: Annotated[Size, Field(ge=64 * _KIB, le=4 * _MIB)] = ByteSize(2 * _MIB)
    """Neighbouring slices are merged into reads of at most so many bytes."""
    commit_interval_ms: Annotated[int, Field(ge=0, le=COMMIT_INTERVAL_MS_MAX)] = 5
    commit_bytes: Bytes = ByteSize(64 * _MIB)
    """A group of writes is committed early when it has so many bytes."""
    device_bytes_per_s_max: Bytes | None = None
    """Rate that each device is limited to, reads and writes each; unset leaves it free."""
    write_share: Share = 0.15
    """Part of a busy device's time that puts get while clients read; at most, and at least."""
    prefetch_share: Share | None = None
    """The same for reads ahead, of what requests in the queues of engines wait for; unset is
    ``PREFETCH_SHARE``, or half of what the others leave where that is less."""
    background_share: Share = 0.05
    """The same for all reads together that nobody waits for: promotion and scrub."""
    background_shares: dict[Background, Share] = Field(default_factory=dict)
    """The same for one kind of these, which else has a fixed part of ``background_share``, or
    ``prefetch_share``."""
    write_cost: Annotated[float, Field(gt=0, le=WRITE_COST_MAX)] = 1.5
    """How many times as long as a read byte a written byte takes a device."""

    @model_validator(mode="after")
    def _possible(self) -> "IoSection":
        *first, last = self._given_shares()
        problem = f"{', '.join(first)} and {last} leave nothing to reads"
        if self.write_share + (self.prefetch_share or 0) + self.background_share >= 1:
            raise ValueError(problem)
        try:
            _ = self.schedule_policy
        except ValueError as error:
            raise ValueError(problem) from error
        return self

    def _given_shares(self) -> list[str]:
        """The keys that count, each with its value."""
        given: dict[str, object] = {"write_share": self.write_share}
        if self.prefetch_share is not None:
            given["prefetch_share"] = self.prefetch_share
        given["background_share"] = self.background_share
        if self.background_shares:
            given["background_shares"] = {
                kind.value: share for kind, share in self.background_shares.items()
            }
        return [f"{key} ({value})" for key, value in given.items()]

    @property
    def schedule_policy(self) -> SchedulePolicy:
        """How the time of each device is divided."""
        others = self.write_share + sum(
            self.background_shares.get(kind, part * self.background_share)
            for kind, part in BACKGROUND_DIVISION.items()
        )
        return SchedulePolicy(
            write_share=self.write_share,
            prefetch_share=self.prefetch_share or min(PREFETCH_SHARE, (1 - others) / 2),
            background_share=self.background_share,
            background_shares=self.background_shares,
            write_cost=self.write_cost,
        )


class ScrubSection(Section):
    """How everything on the devices is read now and then, to find damage before a client does."""

    bytes_per_s_max: Annotated[Size, Field(ge=0)] = ByteSize(32 * _MIB)
    """Rate of reading, over all devices together; 0 turns the scrub off."""
    start_delay_s: Annotated[float, Field(ge=0, le=SCRUB_INTERVAL_S_MAX)] = 600
    """The first pass begins so long after the start: engines have warmed up by then."""
    pass_interval_s: Annotated[float, Field(ge=0.1, le=SCRUB_INTERVAL_S_MAX)] = 7 * 24 * 3600
    """From the beginning of a pass to that of the next, which waits for the end of the first."""


class ServerSection(Section):
    """Sockets and the limits of sessions."""

    socket: Path = Path("/run/kvstored/kvstored.sock")
    grpc_socket: Path = Path("/run/kvstored/grpc.sock")
    socket_mode: Annotated[str, Field(pattern="^0?[0-7]{3}$")] = "0660"
    """Octal permissions of both sockets."""
    socket_group: Account | None = None
    """Group of both sockets; unset leaves the daemon's own."""
    arena_bytes_max: Bytes = ByteSize(4 * _GIB)
    arenas_bytes_max: Bytes = ByteSize(16 * _GIB)
    """Bytes of all arenas together."""
    sessions_max: Annotated[int, Field(ge=1, le=SESSIONS_MAX)] = 64

    @property
    def mode(self) -> int:
        """``socket_mode`` as a number."""
        return int(self.socket_mode, 8)

    @model_validator(mode="after")
    def _possible(self) -> "ServerSection":
        if self.arena_bytes_max > self.arenas_bytes_max:
            raise ValueError(
                f"arena_bytes_max ({self.arena_bytes_max}) is larger than "
                f"arenas_bytes_max ({self.arenas_bytes_max})"
            )
        if self.socket == self.grpc_socket:
            raise ValueError("socket and grpc_socket name the same path")
        return self


class MetricsSection(Section):
    """Where monitoring asks: for Prometheus, and for checks of health and readiness."""

    listen: str | None = None
    """``HOST:PORT``, or the path of a Unix socket; unset listens nowhere."""
    socket_group: Account | None = None
    """Group that may use the Unix socket; unset leaves it to the daemon's own user and root."""

    @field_validator("listen")
    @classmethod
    def _possible(cls, value: str | None) -> str | None:
        if value is not None:
            address_of(value)
        return value

    def address(self) -> TcpAddress | Path | None:
        """``listen``, taken apart."""
        return None if self.listen is None else address_of(self.listen)


class LogLevel(StrEnum):
    """Least severity that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogSection(Section):
    """What the daemon logs to stderr."""

    level: LogLevel = LogLevel.INFO


class Config(BaseSettings):
    """Everything that can be configured. Paths are absolute after ``load_config``."""

    model_config = SettingsConfigDict(
        extra="forbid",
        frozen=True,
        env_prefix=ENV_PREFIX,
        env_nested_delimiter=ENV_NESTING,
    )

    store: StoreSection
    dram: DramSection = DramSection()
    io: IoSection = IoSection()
    scrub: ScrubSection = ScrubSection()
    server: ServerSection = ServerSection()
    metrics: MetricsSection = MetricsSection()
    remote: RemoteSection = RemoteSection()
    access: AccessSection = AccessSection()
    quotas: QuotasSection = QuotasSection()
    log: LogSection = LogSection()

    @model_validator(mode="after")
    def _possible(self) -> "Config":
        if self.dram.capacity_bytes < self.store.slab_bytes:
            raise ValueError(
                f"dram.capacity_bytes ({self.dram.capacity_bytes}) is smaller than one slab of "
                f"store.slab_bytes ({self.store.slab_bytes})"
            )
        if self.remote.listen is not None and not any(t.certificates for t in self.access.tenants):
            raise ValueError(
                "remote.listen is set, but no tenant of access.tenants names certificates: "
                "nobody could call"
            )
        self.quotas.check_names(self.access)
        self.quotas.check_room(
            dram_bytes=self.dram.capacity_bytes, device_bytes=self.store.capacity_bytes
        )
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment, then what the file says (passed as init arguments)."""
        _ = settings_cls, dotenv_settings, file_secret_settings
        return env_settings, init_settings


def load_config(path: Path) -> Config:
    """Reads and validates ``path`` and the environment; raises ConfigError.

    Relative paths are relative to the folder of the file.
    """
    document = _read_document(path)
    _refuse_unknown_variables(os.environ)
    try:
        config = Config(**document)
    except ValidationError as error:
        mistakes = mistakes_of(error, Config, path, os.environ)
        raise ConfigError("\n".join(mistakes)) from error
    except SettingsError as error:
        names = ", ".join(sorted(filter(_is_daemon_variable, os.environ)))
        raise ConfigError(
            f"{error} (set are {names}); write lists and tables in variables as JSON"
        ) from error
    config = _anchored(config, path.absolute().parent)
    address = config.metrics.address()
    sockets = [(config.server.socket, "server"), (config.server.grpc_socket, "server")]
    sockets += [(address, "metrics")] if isinstance(address, Path) else []
    for socket, section in sockets:
        if len(os.fsencode(socket)) > SOCKET_PATH_BYTES_MAX:
            raise ConfigError(
                f"{path}: the socket path {socket} is longer than {SOCKET_PATH_BYTES_MAX} bytes; "
                f"choose a shorter one in [{section}]"
            )
    return config


def _read_document(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError as error:
        raise ConfigError(
            f"{path} does not exist; write it (docs/install.md shows one) or name another file "
            "with --config"
        ) from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}; check its permissions") from (
            error
        )
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}; correct it there") from error


def _refuse_unknown_variables(environment: Mapping[str, str]) -> None:
    """Only nested names belong to the daemon: clients use plain ones (KVSTORED_SOCKET)."""
    for name in filter(_is_daemon_variable, environment):
        section = name[len(ENV_PREFIX) :].split(ENV_NESTING)[0].lower()
        if section not in Config.model_fields:
            raise ConfigError(
                f"the environment variable {name} names no section of the configuration; unset it "
                f"or use one of {', '.join(Config.model_fields)}"
            )


def _is_daemon_variable(name: str) -> bool:
    return name.upper().startswith(ENV_PREFIX) and ENV_NESTING in name


def _anchored(config: Config, folder: Path) -> Config:
    """The configuration with every path made absolute, from ``folder``."""
    store, server, metrics = config.store, config.server, config.metrics
    if isinstance(address := metrics.address(), Path):
        metrics = metrics.model_copy(update={"listen": str(folder / address)})
    return config.model_copy(
        update={
            "store": store.model_copy(
                update={
                    "devices": tuple(folder / device for device in store.devices),
                    "index": folder / store.index,
                }
            ),
            "server": server.model_copy(
                update={
                    "socket": folder / server.socket,
                    "grpc_socket": folder / server.grpc_socket,
                }
            ),
            "metrics": metrics,
            "remote": config.remote.anchored(folder),
        }
    )
