"""The source of every layer of a model."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from engine_adapters.restore.source import SOURCE_OF, Source
from kvstored_contract.layout import StateKind

_SHORT = {Source.HIDDEN: "H", Source.KV: "KV", Source.COMPUTE: "RE"}
"""As in HCache, table 3, and in that order."""


@dataclass(frozen=True, slots=True)
class LayerSchedule:
    """The source of every layer, the first layer first; at least one layer.

    Computed layers come first: a layer can be computed from the tokens only behind
    layers that were. Raises ValueError for another order. ``str`` gives the words of the
    paper's table 3, such as ``36 H + 4 KV``.
    """

    sources: tuple[Source, ...]

    def __post_init__(self) -> None:
        if not self.sources:
            raise ValueError("a schedule needs at least one layer")
        if Source.COMPUTE in self.sources[self.count(Source.COMPUTE) :]:
            raise ValueError(
                "a layer can be computed only when all layers before it are: "
                f"{' '.join(self.sources)}"
            )

    @classmethod
    def of(cls, *counts: tuple[Source, int]) -> Self:
        """The schedule of counts of layers, such as ``of((HIDDEN, 31), (KV, 1))``."""
        return cls(tuple(source for source, count in counts for _ in range(count)))

    @classmethod
    def of_kinds(cls, kinds: Iterable[StateKind]) -> Self:
        """The schedule that a layout was stored for; raises ValueError if there is none."""
        return cls(tuple(SOURCE_OF[kind] for kind in kinds))

    def kinds(self) -> tuple[StateKind, ...]:
        """What is stored of every layer."""
        return tuple(source.kind for source in self.sources)

    def count(self, source: Source) -> int:
        """Number of layers with this source."""
        return self.sources.count(source)

    @property
    def layer_count(self) -> int:
        """Number of layers."""
        return len(self.sources)

    def token_bytes(self, *, hidden_bytes: int, kv_bytes: int) -> int:
        """Bytes stored of one token, from the bytes of one layer of it."""
        return self.count(Source.HIDDEN) * hidden_bytes + self.count(Source.KV) * kv_bytes

    def __str__(self) -> str:
        counts = {short: self.count(source) for source, short in _SHORT.items()}
        return " + ".join(f"{count} {short}" for short, count in counts.items() if count)
