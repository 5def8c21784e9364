"""The sequences of the fake client: open tails that grow row by row."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kvstored_client import SequenceInfo, StateKind, StateLayout
from kvstored_contract.snapshot import SnapshotGeometry


@dataclass
class OpenSequence:
    """``rows[layer]`` holds the tokens of the open tail: halves of each, one after the other."""

    layout: StateLayout
    keys: list[bytes]
    rows: list[list[tuple[bytes, ...]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rows = [[] for _ in self.layout.layers]

    @property
    def tail_tokens(self) -> int:
        return max(map(len, self.rows))

    @property
    def length_tokens(self) -> int:
        return len(self.keys) * self.layout.chunk_tokens + self.tail_tokens

    def add(self, snapshot: memoryview, row: int, geometry: SnapshotGeometry) -> None:
        for layer, state in enumerate(self.layout.layers):
            halves = 2 if state.kind is StateKind.KV else 1
            row_bytes = state.token_bytes // halves
            starts = [
                geometry.offsets[layer] + (half * geometry.row_count + row) * row_bytes
                for half in range(halves)
            ]
            if row_bytes:
                parts = tuple(bytes(snapshot[start : start + row_bytes]) for start in starts)
                self.rows[layer].append(parts)

    def drop_tail(self) -> None:
        self.rows = [[] for _ in self.layout.layers]

    def seal(self, key: bytes) -> list[bytes]:
        """The slices of the tail, which is a complete chunk."""
        slices = [
            b"".join(b"".join(half) for half in zip(*layer, strict=True)) for layer in self.rows
        ]
        self.drop_tail()
        self.keys.append(key)
        return slices


class FakeSequences:
    """The verbs of ``kvstored_client.Sequences`` that the runner uses."""

    def __init__(self, is_served: Callable[[], bool]) -> None:
        self.open: dict[str, OpenSequence] = {}
        self.refuses = False
        self._is_served = is_served

    def create(
        self, name: str, layout: StateLayout, *, keys: Sequence[bytes], ephemeral: bool
    ) -> SequenceInfo | None:
        assert ephemeral
        assert name not in self.open
        if self.refuses or not self._is_served():
            return None
        self.open[name] = OpenSequence(layout, list(keys))
        return self._info(name)

    def truncate_tokens(self, name: str, drop_tokens: int) -> SequenceInfo | None:
        sequence = self.open.get(name)
        if sequence is None or not self._is_served():
            return None
        assert drop_tokens == sequence.tail_tokens
        sequence.drop_tail()
        return self._info(name)

    def flush(self, name: str, tail_key: bytes, *, expected_tokens: int) -> SequenceInfo | None:
        if name not in self.open or not self._is_served():
            return None
        assert not tail_key
        info = self._info(name)
        assert info.staged_tokens == expected_tokens
        return info

    def delete(self, name: str) -> bool:
        return self.open.pop(name, None) is not None

    def _info(self, name: str) -> SequenceInfo:
        sequence = self.open[name]
        length_tokens = sequence.length_tokens
        return SequenceInfo(
            name=name,
            layout_id=sequence.layout.layout_id,
            keys=tuple(sequence.keys),
            dropped_chunks=0,
            tail_tokens=sequence.tail_tokens,
            staged_tokens=length_tokens,
            durable_tokens=length_tokens - sequence.tail_tokens,
        )
