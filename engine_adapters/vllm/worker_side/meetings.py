"""Between two steps all ranks bring chunks of which each has a part (HCache, section 5)."""

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import Tensor

from engine_adapters.device_copies.landing import Landing
from engine_adapters.vllm.worker_side.rank_group import RankGroup

LOGGER = logging.getLogger("vllm.kvstored")
Join = Callable[[Tensor], Tensor]
"""Makes whole layer inputs [row_count, hidden_size] of this rank's columns of them."""
NO_MORE = -1
"""What a rank says of a load that it brings nothing of any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Chunks of a load that have come to this rank, and are next.

    ``wanted`` says how many of them still are; ``rows`` how many tokens the first ones have.
    ``fill`` brings the first ones into their blocks, and ``take`` notes that all ranks have.
    """

    wanted: Callable[[], int]
    rows: Callable[[int], int]
    fill: Callable[[int, Join], Landing]
    take: Callable[[int, Landing], None]


@dataclass(slots=True)
class _Load:
    """A load that runs in this rank: what it offers, and whether others had nothing to add."""

    offer: Offer | None = None
    lacks_others: bool = False
    is_parted: bool = False


class Meetings:
    """Chunks wait here until every rank has its part; then all ranks bring them in one meeting.

    The scheduler says in which steps there is a meeting, and of which loads, so that no rank waits
    for one that does not come. In a meeting every rank makes the same calls, whatever fails in it:
    a chunk that one rank could not bring counts as brought by none. A load of which one rank
    brings nothing more ends in all of them.

    Loads offer in the loader's thread and meetings are held in the engine's, each with ``turn``.
    """

    def __init__(self, ranks: RankGroup) -> None:
        self.turn = threading.RLock()
        self._ranks = ranks
        self._loads: dict[int, _Load] = {}
        self._chunks_max = 0
        self._layer_count = 0
        self._row_bytes = 0
        self._part = torch.empty(0, dtype=torch.uint8)
        self._room = torch.empty(0, dtype=torch.uint8)

    def prepare(
        self,
        *,
        chunks_max: int,
        row_count_max: int,
        row_bytes: int,
        layer_count: int,
        device: torch.device,
    ) -> None:
        """Takes the memory for meetings, so that none lacks it: a meeting that began has to end.

        ``row_bytes`` are this rank's of a layer input; ``layer_count`` layers have such states.
        """
        part_bytes = row_count_max * row_bytes
        with torch.inference_mode(mode=False):
            self._part = torch.zeros(part_bytes, dtype=torch.uint8, device=device)
            self._room = self._part.repeat(self._ranks.size)
        self._row_bytes = row_bytes
        self._chunks_max, self._layer_count = chunks_max, layer_count

    def open(self, load_id: int) -> None:
        """A load has begun in this rank."""
        with self.turn:
            self._loads[load_id] = _Load()

    def close(self, load_id: int) -> None:
        """It has ended."""
        with self.turn:
            self._loads.pop(load_id, None)

    def offer(self, load_id: int, offer: Offer) -> None:
        """What can be brought next, in place of what was offered before."""
        self._loads[load_id].offer = offer

    def waits_for_engine(self, load_id: int) -> bool:
        """Whether a load is ready for the next meeting, as far as this rank knows."""
        load = self._loads.get(load_id)
        return load is not None and load.offer is not None and not load.lacks_others

    def is_parted(self, load_id: int) -> bool:
        """Whether some rank brings nothing more."""
        load = self._loads.get(load_id)
        return load is not None and load.is_parted

    def meet(self, load_ids: Sequence[int]) -> None:
        """On the engine's thread, in all ranks: brings what all of them have."""
        with self.turn:
            counts = self._ranks.least([self._ready_chunks(load_id) for load_id in load_ids])
            left, agreed = self._chunks_max, []
            for load_id, said in zip(load_ids, counts, strict=True):
                if (load := self._loads.get(load_id)) is not None:
                    load.lacks_others = said == 0
                if said == NO_MORE:
                    self._part_from(load_id)
                elif (count := min(said, left)) > 0:
                    agreed.append((load_id, count))
                    left -= count
            if agreed:
                self._bring(agreed)

    def _ready_chunks(self, load_id: int) -> int:
        load = self._loads.get(load_id)
        if load is None or load.is_parted:
            return NO_MORE
        return 0 if load.offer is None else load.offer.wanted()

    def _part_from(self, load_id: int) -> None:
        if (load := self._loads.get(load_id)) is not None:
            load.offer, load.is_parted = None, True

    def _bring(self, agreed: Sequence[tuple[int, int]]) -> None:
        landings = [self._fill(load_id, count) for load_id, count in agreed]
        has_all = self._ranks.least([int(landing is not None) for landing in landings])
        for (load_id, count), landing, is_brought in zip(agreed, landings, has_all, strict=True):
            load = self._loads[load_id]
            offer, load.offer = load.offer, None
            if landing is not None and is_brought:
                assert offer is not None, "the counts were of what every rank offers"
                offer.take(count, landing)
                continue
            self._part_from(load_id)
            if landing is not None:
                # Nothing of it counts, and its blocks are written until it is over.
                with suppress(Exception):
                    landing.wait()

    def _fill(self, load_id: int, count: int) -> Landing | None:
        """Brings chunks of a load; None where that failed here."""
        offer = self._loads[load_id].offer
        assert offer is not None, "the counts were of what every rank offers"
        parts = _Parts(
            self._ranks,
            layer_count=self._layer_count,
            part=self._part[: offer.rows(count) * self._row_bytes],
            room=self._room,
        )
        try:
            return offer.fill(count, parts.join)
        except Exception:
            LOGGER.exception("kvstored: a load failed and counts as a miss")
            return None
        finally:
            parts.end()


class _Parts:
    """The layer inputs of some chunks, layer after layer: as many calls in every rank."""

    def __init__(self, ranks: RankGroup, *, layer_count: int, part: Tensor, room: Tensor) -> None:
        self._ranks = ranks
        self._left = layer_count
        self._part = part
        self._room = room[: ranks.size * len(part)].view(ranks.size, len(part))

    def join(self, part: Tensor) -> Tensor:
        """The whole inputs of the next layer: see ``Join``."""
        self._part.copy_(part.contiguous().view(torch.uint8).view(-1))
        self._gather()
        rows = self._room.view(self._ranks.size, len(part), -1).transpose(0, 1)
        return rows.reshape(len(part), -1).view(part.dtype)

    def end(self) -> None:
        """Makes the calls that are left, of a rank that has failed: the others wait for them."""
        while self._left:
            self._gather()

    def _gather(self) -> None:
        self._left -= 1
        self._ranks.gather(self._part, self._room)
