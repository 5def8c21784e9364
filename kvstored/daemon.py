"""The composition root: opens devices, index and store, serves, and closes in order.

Start-up order: devices (their locks keep a second daemon out), index (looked through
first after an unclean stop, rebuilt from the devices when it is unsound or new),
recovery, epoch, tiers, sockets. The end is the reverse; the index is marked clean last.
"""

import asyncio
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kvstored.accounts import access_rules, remote_options, socket_group
from kvstored.config import Config, ConfigError, IoSection, ScrubSection
from kvstored.config_tenants import QuotasSection
from kvstored.io.device import Device
from kvstored.io.engine import IoEngine
from kvstored.io.memory_group import group_room_bytes
from kvstored.io.monitored import MonitoredDevice
from kvstored.io.open_engine import open_engine
from kvstored.io.scheduled_engine import ScheduledEngine
from kvstored.io.throttled import ThrottledDevice
from kvstored.metrics.listener import listener_of
from kvstored.metrics.looks import Looks
from kvstored.metrics.view import DaemonView
from kvstored.reload import Reload
from kvstored.server.held.arena import GROUP_SPARE_BYTES
from kvstored.server.listen import SocketPermissions
from kvstored.server.notify import environment_notifier
from kvstored.server.server import Server, ServerOptions
from kvstored.server.session_table import SessionLimits
from kvstored.store.index.service import close_cleanly
from kvstored.store.read.plan import PlanLimits
from kvstored.store.read.reader import ReaderLimits
from kvstored.store.space.device_set import DeviceSet, open_device_set
from kvstored.store.start import index_open
from kvstored.store.write.committer import CommitLimits
from kvstored.tiers.namespaces import NamespaceLimits
from kvstored.tiers.scrub.scrub_pace import ScrubLimits
from kvstored.tiers.tiered_store import RecoveredStore, TieredStore, TierLimits
from kvstored.turnstile import TURNSTILE, LoopSelector

LOGGER = logging.getLogger(__name__)

COPY_DEPTH_MIN, COPY_DEPTH_MAX = 2, 8
"""Threads that copy from the DRAM tier. Two saturate the memory of small machines. On large ones
one thread moves a small part of what memory can, and with more than eight the interpreter lock is
the limit."""
RUN_BYTES_MIN = 512 * 1024
"""Layer-first reads merge layers until a transfer is so large."""
RUN_S_MIN = 0.001
"""Or until it takes a device that is limited so long: the first layers of a slow one would come
with all others."""
WINDOW_ROUNDS = 4
"""The default window lets each device have so many times its depth in flight."""
LOG_INTERVAL_S = 5.0
SWITCH_INTERVAL_S = 0.00005
"""How long a thread that computes (the checks of a large call) may keep the interpreter from the
event loop. Another tenant's small call meets that about ten times."""
COLLECT_OBJECTS = (20_000, 10, 1000)
"""So many new objects are looked through for cycles at once, in some milliseconds; those that
last, of which there are as many as chunks, next to never."""
METRICS_MODE, METRICS_GROUP_MODE = 0o600, 0o660
_GIB = 1024 * 1024 * 1024


def throttled(device: Device, settings: IoSection) -> Device:
    """The device, limited to the configured rate if there is one."""
    bytes_per_s = settings.device_bytes_per_s_max
    if bytes_per_s is None:
        return device
    return ThrottledDevice(device, read_bytes_per_s=bytes_per_s, write_bytes_per_s=bytes_per_s)


Limit = Callable[[Device, IoSection], Device]
"""What a device is wrapped in to be as slow as it should be."""


def run_daemon(config: Config, *, limit: Limit = throttled, reload: Reload | None = None) -> None:
    """Serves until SIGTERM or SIGINT, then drains. On SIGHUP it does what ``reload`` says.

    Raises ConfigError, DeviceSetError, IndexFailure, RecoverError, DeviceError or
    ListenError where it cannot start: each message is one sentence.
    """
    check_memory(config)
    rules = access_rules(config.access)
    permissions = SocketPermissions(
        mode=config.server.mode, gid=socket_group(config.server.socket_group)
    )
    remote = remote_options(config.remote)
    view = DaemonView()
    with monitored(config, view), open_store(config, limit=limit) as (store, epoch):
        options = ServerOptions(
            socket=config.server.socket,
            grpc_socket=config.server.grpc_socket,
            permissions=permissions,
            rules=rules,
            limits=SessionLimits(
                arena_bytes_max=config.server.arena_bytes_max,
                arenas_bytes_max=config.server.arenas_bytes_max,
                sessions_max=config.server.sessions_max,
            ),
            epoch=epoch,
            remote=remote,
        )
        _be_fair()
        selector = LoopSelector()
        TURNSTILE.watch(selector.has_work)
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
            runner.run(serve(store, options, view, reload))


@contextmanager
def monitored(config: Config, view: DaemonView) -> Iterator[None]:
    """Answers monitoring while the body runs, where that is configured; raises ListenError.

    Names of all namespaces' sequences are on its page: tenants have no part in it.
    """
    address = config.metrics.address()
    if address is None:
        yield
        return
    # Only here: it takes memory, and time to import.
    from kvstored.metrics.endpoint import endpoint

    gid = socket_group(config.metrics.socket_group)
    mode = METRICS_MODE if gid is None else METRICS_GROUP_MODE
    listener = listener_of(address, SocketPermissions(mode=mode, gid=gid))
    try:
        with endpoint(listener, view):
            yield
    finally:
        if isinstance(address, Path):
            address.unlink(missing_ok=True)


def _be_fair() -> None:
    """Keeps what one call makes the interpreter do from holding up all others for long."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    # What is there by now stays: nothing of it is looked through again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_OBJECTS)


async def serve(
    store: TieredStore, options: ServerOptions, view: DaemonView, reload: Reload | None = None
) -> None:
    """Serves and drains; the store is closed when this returns."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if reload is not None:
        loop.add_signal_handler(signal.SIGHUP, _reload, reload, store)
    notifier = environment_notifier()
    pulse = asyncio.create_task(notifier.keep_alive())
    server = Server(store, options, notifier)
    looks = Looks(store, server, options.rules)
    view.begin_serving(looks.snapshot, looks.hottest)
    draining = asyncio.create_task(_drain_when(stop, view))
    try:
        await server.run(stop)
    finally:
        draining.cancel()
        view.begin_draining()
        # The pulse goes on while the last writes are finished.
        await asyncio.to_thread(store.close)
        looks.close()
        pulse.cancel()
    LOGGER.info("every write is durable")


def _reload(reload: Reload, store: TieredStore) -> None:
    reload.run(store.upkeep.quotas, lambda config: namespace_limits(config.quotas))


async def _drain_when(stop: asyncio.Event, view: DaemonView) -> None:
    await stop.wait()
    view.begin_draining()


@contextmanager
def open_store(config: Config, *, limit: Limit = throttled) -> Iterator[tuple[TieredStore, int]]:
    """Opens and recovers the store; yields it with the new epoch.

    The body closes the store itself, unless it raises; index and devices are closed here.
    """
    monitors: list[MonitoredDevice] = []

    def watched(device: Device) -> Device:
        monitors.append(MonitoredDevice(limit(device, config.io)))
        return monitors[-1]

    with ExitStack() as opened:
        device_set = open_device_set(config.store.devices, wrap=watched)
        opened.callback(device_set.close)
        started = index_open.start(
            config.store.index,
            config.store.index_map_bytes,
            device_set,
            log_progress("slabs read to rebuild the index"),
        )
        index, recovered = started.index, started.recovered
        with ExitStack() as failing:
            # With the index goes its lock: who tries again in this process finds it free.
            failing.callback(index.close)
            if recovered.dropped_count:
                LOGGER.warning("%d damaged index entries were dropped", recovered.dropped_count)
            LOGGER.info("recovered %d chunks", len(recovered.table))
            store = _tiered_store(config, started, device_set, tuple(monitors))
            failing.callback(store.close)
            yield store, started.epoch
            failing.pop_all()
        if store.has_failed:
            # What the table says may not be what the index has.
            index.close()
        else:
            close_cleanly(index, recovered.table, store.next_stamp)


def _tiered_store(
    config: Config,
    started: index_open.Started,
    device_set: DeviceSet,
    devices: tuple[MonitoredDevice, ...],
) -> TieredStore:
    """The store over what was opened, with an engine of its own."""
    depth = config.io.depth_per_device
    engine = scheduled(open_engine(device_set.devices, kind=config.io.engine, depth=depth), config)
    try:
        return TieredStore(
            RecoveredStore(
                device_set=device_set,
                devices=devices,
                index=started.index,
                allocator=started.recovered.allocator,
                table=started.recovered.table,
                next_stamp=started.recovered.next_stamp,
            ),
            engine=engine,
            limits=tier_limits(config),
        )
    except BaseException:
        engine.close()
        raise


def scheduled(engine: IoEngine, config: Config) -> ScheduledEngine:
    """The engine with each device's time divided between reads, writes and background."""
    return ScheduledEngine(
        engine,
        device_count=len(config.store.devices),
        depth=config.io.depth_per_device,
        policy=config.io.schedule_policy,
    )


def tier_limits(config: Config) -> TierLimits:
    """The sizes that the store is built with."""
    settings = config.io
    return TierLimits(
        dram_bytes=config.dram.capacity_bytes,
        dram_slab_bytes=config.store.slab_bytes,
        dram_retention=config.dram.retention,
        device_retention=config.store.retention,
        commit=CommitLimits(
            interval_s=settings.commit_interval_ms / 1000, group_bytes=settings.commit_bytes
        ),
        reader=ReaderLimits(
            depth=settings.depth_per_device,
            copy_depth=copy_depth(len(os.sched_getaffinity(0))),
            window_bytes=WINDOW_ROUNDS * in_flight_bytes(config),
            plan=PlanLimits(
                run_bytes_min=run_bytes_min(settings),
                run_bytes_max=settings.read_bytes_max,
            ),
        ),
        scrub=scrub_limits(config.scrub),
        namespaces=namespace_limits(config.quotas),
        ttl_s=config.quotas.ttl_s,
    )


def in_flight_bytes(config: Config) -> int:
    """What all devices read at once, for which there is memory to land in."""
    per_device = config.io.depth_per_device * config.io.read_bytes_max
    return len(config.store.devices) * per_device


def copy_depth(core_count: int) -> int:
    """How many threads copy from the DRAM tier, where clients want half of the cores."""
    return max(COPY_DEPTH_MIN, min(core_count // 2, COPY_DEPTH_MAX))


def run_bytes_min(settings: IoSection) -> int:
    """How large a transfer of a layer-first read is at least, where it can have several layers."""
    limit = settings.device_bytes_per_s_max
    limited_bytes = RUN_BYTES_MIN if limit is None else int(limit * RUN_S_MIN)
    return min(RUN_BYTES_MIN, settings.read_bytes_max, limited_bytes)


def namespace_limits(section: QuotasSection) -> tuple[NamespaceLimits, ...]:
    """What each namespace with a quota may have."""
    return tuple(
        NamespaceLimits(name=one.namespace, dram=one.dram, devices=one.devices, ttl_s=one.ttl_s)
        for one in section.namespaces
    )


def scrub_limits(section: ScrubSection) -> ScrubLimits | None:
    """The scrub's rate and times; None when it is off."""
    if section.bytes_per_s_max == 0:
        return None
    return ScrubLimits(
        bytes_per_s=section.bytes_per_s_max,
        start_delay_s=section.start_delay_s,
        pass_interval_s=section.pass_interval_s,
    )


def check_memory(config: Config) -> None:
    """Refuses a DRAM tier that this machine cannot hold; raises ConfigError.

    A control group has to hold besides what the start takes: the kernel kills, with no sentence.
    """
    room_bytes = group_room_bytes()
    others_bytes = in_flight_bytes(config) + GROUP_SPARE_BYTES
    if room_bytes is not None and config.dram.capacity_bytes + others_bytes > room_bytes:
        raise ConfigError(
            f"dram.capacity_bytes ({config.dram.capacity_bytes}), with {others_bytes} bytes for "
            f"reads and everything else, is more than the {room_bytes} bytes that the control "
            "group of the daemon may still take; lower it or raise MemoryMax"
        )
    physical_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if config.dram.capacity_bytes > physical_bytes:
        raise ConfigError(
            f"dram.capacity_bytes ({config.dram.capacity_bytes}) is more than the "
            f"{physical_bytes / _GIB:.1f} GiB of memory that this machine has; lower it"
        )


def log_progress(what: str) -> Callable[[int, int], None]:
    """A progress callback that logs every LOG_INTERVAL_S."""
    logged_at = time.monotonic()

    def report(done: int, total: int) -> None:
        nonlocal logged_at
        now = time.monotonic()
        if now - logged_at >= LOG_INTERVAL_S:
            logged_at = now
            LOGGER.info("%s: %d of %d", what, done, total)

    return report
