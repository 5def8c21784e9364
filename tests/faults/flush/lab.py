"""A daemon that is led from fault to fault; after each it is killed, started and verified.

What was acknowledged as durable in any round must be there after every later start.
"""

from dataclasses import dataclass

from kvstored_client import Client, Reason
from tests.faults.flush.chunks import put, readable
from tests.faults.flush.strace import Injection, Trace, injected
from tests.support.daemon import MIB, DaemonProcess, Overrides

PUTS = 6
"""Puts while faults are injected, to both devices in turn."""
PUTS_BEHIND = 2
"""Puts when calls succeed again: what has failed must stay so."""
ARENA = "4MiB"

# One thread for each device, because strace counts the calls of each thread by itself.
SMALL: Overrides = {
    "store": {"device_bytes": 33 * MIB, "slab_bytes": 4 * MIB, "index_map_bytes": 16 * MIB},
    "dram": {"capacity_bytes": 16 * MIB},
    "io": {"engine": "threads", "depth_per_device": 1},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What a fault did.

    ``reasons`` are those of the puts while faults were injected, ``reasons_behind`` of
    those behind them. ``stored`` were acknowledged before the daemon started and lie on
    the devices only, ``fresh`` in this round and before the fault, so that DRAM has them;
    ``readable_after`` are those of both that could be read after the fault.
    """

    trace: Trace
    numbers: tuple[int, ...]
    reasons: tuple[Reason, ...]
    reasons_behind: tuple[Reason, ...]
    stored: tuple[int, ...]
    fresh: tuple[int, ...]
    readable_after: tuple[int, ...]
    failed_devices: tuple[bool, ...]
    log: str

    @property
    def is_hit(self) -> bool:
        """Whether any call was made to fail; when none was, all faults have been seen."""
        return self.trace.is_hit


class FaultLab:
    """Rounds of faults on one store."""

    def __init__(self, daemon: DaemonProcess) -> None:
        self.daemon = daemon
        self.acked: list[int] = []
        self._next_number = 0
        self._round_count = 0

    def put(self, client: Client) -> tuple[int, Reason]:
        """Puts the next chunk; even and odd numbers take turns on two devices."""
        number = self._next_number
        self._next_number += 1
        reason = put(client, number)
        if reason is Reason.UNSPECIFIED:
            self.acked.append(number)
        return number, reason

    def round(self, injection: Injection) -> Round:
        """One fault, and what comes of it while the daemon runs."""
        self._round_count += 1
        log_start = len(self.daemon.log)
        stored = tuple(self.acked)
        trace = self.daemon.folder / f"trace-{self._round_count}"
        with Client(self.daemon.socket_path, arena_bytes=ARENA) as client:
            # The layout of a session is a commit of its own, which comes before the fault.
            fresh = tuple(self.put(client)[0] for _ in range(2))
            assert set(fresh) <= set(self.acked)
            with injected(self.daemon.pid, injection, trace) as seen:
                results = [self.put(client) for _ in range(PUTS)]
            behind = [self.put(client)[1] for _ in range(PUTS_BEHIND)]
            numbers = tuple(number for number, _ in results)
            found = readable(client, (*stored, *fresh, *numbers))
            failed = failed_devices(client)
        return Round(
            trace=seen,
            numbers=numbers,
            reasons=tuple(reason for _, reason in results),
            reasons_behind=tuple(behind),
            stored=stored,
            fresh=fresh,
            readable_after=tuple(found),
            failed_devices=failed,
            log=self.daemon.log[log_start:],
        )

    def recover(self) -> None:
        """Kills and starts the daemon; everything acknowledged must be there and right."""
        self.daemon.restart()
        self.verify()

    def verify(self) -> None:
        """Reads everything that was acknowledged."""
        with Client(self.daemon.socket_path, arena_bytes=ARENA) as client:
            missing = set(self.acked) - set(readable(client, self.acked))
        assert missing == set(), "acknowledged chunks are gone"

    def finish(self) -> None:
        """Stops the daemon in order and checks every stored byte."""
        assert self.daemon.terminate() == 0
        check_is_clean(self.daemon)


def check_is_clean(daemon: DaemonProcess) -> None:
    """``kvstored check`` finds nothing."""
    check = daemon.run_verb("check", "--json")
    assert check.returncode == 0, check.stdout + check.stderr


def failed_devices(client: Client) -> tuple[bool, ...]:
    """Which devices the statistics call failed."""
    return tuple(device.failed for device in client.admin.stats().devices)
