"""Steps of a decoding batch that wait on the device, to leave it together."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from engine_adapters.runner.save.save_queue import Rows


class HeldSteps:
    """Consecutive steps with one token each of the same sequences. One thread only.

    A copy, a call of the store and waking the thread that makes it cost about as much for one step
    as for several, and all of them cost time of the engine's thread: an interpreter runs one
    thread at a time.
    """

    def __init__(self, *, steps_max: int) -> None:
        """With a ``steps_max`` of 1 nothing is ever held."""
        self._steps_max = steps_max
        self._bytes_max = self._rows_max = 0
        self._kept_bytes: list[int] = []
        """Memory of the device that each step keeps: states may be parts of larger tensors."""
        self._rows: list[tuple[Rows, ...]] = []
        self._states: list[dict[int, tuple[Tensor, ...]]] = []
        self._row_count = 0
        self.is_open = False
        """Whether the last step is still being computed."""

    def set_room(self, byte_count: int, *, row_bytes: int) -> None:
        """So many bytes may wait, and make one copy; a row has ``row_bytes`` of those stored."""
        self._bytes_max = byte_count
        self._rows_max = byte_count // max(1, row_bytes)

    @property
    def step_count(self) -> int:
        """Complete steps that wait."""
        return len(self._rows) - self.is_open

    @property
    def row_count(self) -> int:
        """Rows of all complete steps together."""
        return self.step_count * self._row_count

    def may_hold(self, rows: Sequence[Rows], row_count: int) -> bool:
        """Whether a step may wait at all: others as large have to find room beside it."""
        has_room = self._steps_max > 1 and 2 * row_count <= self._rows_max
        return has_room and all(part.token_count == 1 for part in rows)

    def is_followed_by(self, rows: Sequence[Rows], row_count: int) -> bool:
        """Whether a step may wait beside those that do."""
        if not self._rows:
            return True
        return row_count == self._row_count and [
            (part.sequence, part.first_row, part.first_token) for part in rows
        ] == [(part.sequence, part.first_row, part.first_token + 1) for part in self._rows[-1]]

    def begin(self, rows: Sequence[Rows], row_count: int) -> None:
        """Opens a step, whose tensors have ``row_count`` rows."""
        self._rows.append(tuple(rows))
        self._states.append({})
        self._kept_bytes.append(0)
        self._row_count = row_count
        self.is_open = True

    def take(self, layer: int, parts: tuple[Tensor, ...]) -> None:
        """Keeps what is stored of one layer of the open step: tensors of [rows, ...]."""
        kept = tuple(self._own(part) for part in parts)
        self._states[-1][layer] = kept
        storages = {part.untyped_storage().data_ptr(): part.untyped_storage() for part in kept}
        self._kept_bytes[-1] += sum(storage.nbytes() for storage in storages.values())

    def end(self) -> bool:
        """The open step is complete; True where no other of as many rows may wait beside these."""
        self.is_open = False
        rows = self.row_count + self._row_count
        kept_bytes = sum(self._kept_bytes) + self._kept_bytes[-1]
        has_room = rows <= self._rows_max and kept_bytes <= self._bytes_max
        return self.step_count >= self._steps_max or not has_room

    def abandon(self) -> None:
        """Forgets the open step, if there is one."""
        if self.is_open:
            self._rows.pop()
            self._states.pop()
            self._kept_bytes.pop()
            self.is_open = False

    def joined_rows(self) -> tuple[Rows, ...]:
        """The rows of each sequence in all complete steps, as ``parts`` orders them."""
        count = self.step_count
        return tuple(
            replace(part, first_row=part.first_row * count, token_count=count)
            for part in self._rows[0]
        )

    @torch.inference_mode()
    def parts(self, layer: int) -> tuple[Tensor, ...]:
        """Those of a layer in all complete steps: the rows of a sequence follow each other."""
        steps = self._states[: self.step_count]
        return tuple(
            torch.stack(parts, dim=1).flatten(0, 1)
            for parts in zip(*(step[layer] for step in steps), strict=True)
        )

    @torch.inference_mode()
    def _own(self, part: Tensor) -> Tensor:
        """The rows of the step alone: others behind them may be many more."""
        return part if part.shape[0] == self._row_count else part[: self._row_count].clone()

    def clear(self) -> None:
        """Forgets all complete steps; the open one stays, where there is one."""
        count = self.step_count
        del self._rows[:count], self._states[:count], self._kept_bytes[:count]
