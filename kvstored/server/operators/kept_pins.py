"""Pins that an operator asked for: they outlive the session, and end by themselves. Pure.

The caller names the time, and returns the chunks of the pins that have ended.
"""

from dataclasses import dataclass

from kvstored.server.held.leases import Lease

PINS_MAX = 1024
PINNED_CHUNKS_MAX = 1_048_576
"""Of all pins together, which bounds the daemon's memory for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPin:
    """Pinned chunks of a namespace; ``label`` is what the operator named."""

    pin_id: int
    namespace: str
    label: str
    lease: Lease


class KeptPins:
    """Every pinned chunk is returned exactly once: by ``end``, ``expire`` or ``clear``."""

    def __init__(self) -> None:
        self._pins: dict[int, KeptPin] = {}
        self._next_id = 1

    def __len__(self) -> int:
        return len(self._pins)

    @property
    def chunk_count(self) -> int:
        """Chunks of all pins, each counted as often as it is pinned."""
        return sum(len(pin.lease.chunks) for pin in self._pins.values())

    def has_room(self, chunk_count: int) -> bool:
        """Whether a pin of so many chunks may be added."""
        return len(self) < PINS_MAX and self.chunk_count + chunk_count <= PINNED_CHUNKS_MAX

    def add(self, lease: Lease, *, namespace: str, label: str) -> int:
        """Keeps a pin and returns its id, which is never 0 and never used again."""
        pin_id = self._next_id
        self._next_id += 1
        self._pins[pin_id] = KeptPin(pin_id=pin_id, namespace=namespace, label=label, lease=lease)
        return pin_id

    def all(self) -> tuple[KeptPin, ...]:
        """Every pin, the oldest first."""
        return tuple(self._pins.values())

    def end(self, pin_id: int) -> tuple[Lease, ...]:
        """Ends one pin; nothing where there is none."""
        pin = self._pins.pop(pin_id, None)
        return () if pin is None else (pin.lease,)

    def expire(self, now: float) -> tuple[Lease, ...]:
        """Ends what is due at ``now``."""
        due = [pin.pin_id for pin in self._pins.values() if pin.lease.expires_at <= now]
        return tuple([self._pins.pop(pin_id).lease for pin_id in due])

    def clear(self) -> tuple[Lease, ...]:
        """Ends all."""
        leases = tuple(pin.lease for pin in self._pins.values())
        self._pins.clear()
        return leases
