"""Training step by step, to be interrupted at any time and gone on with later."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_
from torch.optim import AdamW, Muon, Optimizer

from benchmarks.training.batch import IGNORED, TEXT, Batch
from benchmarks.training.network import Llama
from benchmarks.training.plan import Plan, ShapeT

STATE_FILE = "training.pt"
SECONDS_MAX = 7200
"""Training takes no longer, by its own clock."""
SAVED_EVERY_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """Nats per token of text and of each kind of answers, and which share of these came first."""

    text: float
    answers: tuple[float, ...]
    right_shares: tuple[float, ...]


class Trainer(Generic[ShapeT]):
    """A network and its optimizers. One thread only.

    What step n does depends on the plan, the text and n alone, so a training that was
    interrupted ends with the same weights as one that was not.
    """

    def __init__(
        self,
        network: Llama,
        plan: Plan[ShapeT],
        draw: Callable[[ShapeT, int], Batch],
        *,
        answer_kinds: int,
    ) -> None:
        """``draw`` gives the batch of a shape for a step, with so many kinds of answers."""
        self.step = 0
        self.seconds = 0.0
        self._network = network
        self._plan = plan
        self._draw = draw
        self._answer_kinds = range(1, 1 + answer_kinds)
        self._rates = (plan.matrix_rate, plan.other_rate)
        self._optimizers: tuple[Optimizer, Optimizer] = (
            Muon(
                network.matrices(),
                lr=plan.matrix_rate,
                weight_decay=plan.weight_decay,
                adjust_lr_fn="original",
            ),
            AdamW(network.others(), lr=plan.other_rate, betas=(0.9, 0.95), weight_decay=0.0),
        )

    @property
    def is_over(self) -> bool:
        """Whether all steps were made, or the time is up."""
        return self.step >= self._plan.step_count or self.seconds >= SECONDS_MAX

    def run(self, seconds_max: float, report: Callable[[int, Losses], None]) -> None:
        """Steps until training is over or so many seconds have passed."""
        begun_s = now_s = time.perf_counter()
        while not self.is_over and now_s - begun_s < seconds_max:
            losses = self.make_step()
            before_s, now_s = now_s, time.perf_counter()
            self.seconds += now_s - before_s
            report(self.step, losses)

    def make_step(self) -> Losses:
        """One batch, one update."""
        plan = self._plan
        loss, losses = self._losses(self._draw(plan.batch(self.step), self.step))
        loss.backward()  # type: ignore[no-untyped-call]
        clip_grad_norm_(self._network.parameters(), plan.gradient_norm_max)
        share = plan.rate_share(self.step)
        for optimizer, rate in zip(self._optimizers, self._rates, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = rate * share
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return losses

    def _losses(self, batch: Batch) -> tuple[Tensor, Losses]:
        counts = batch.targets != IGNORED
        targets, kinds = batch.targets[counts], batch.kinds[counts]
        with torch.autocast("cpu", torch.bfloat16):
            logits = self._network(batch.inputs, counts)
        each = cross_entropy(logits.float(), targets, reduction="none")
        are_right = (logits.argmax(-1) == targets).float()
        text = _mean(each[kinds == TEXT])
        answers = [_mean(each[kinds == kind]) for kind in self._answer_kinds]
        losses = Losses(
            text=text.item(),
            answers=tuple(one.item() for one in answers),
            right_shares=tuple(
                _mean(are_right[kinds == kind]).item() for kind in self._answer_kinds
            ),
        )
        return text + self._plan.answer_weight * sum(answers), losses

    def save(self, folder: Path) -> None:
        """Writes all that ``load`` wants; whole or not at all."""
        unfinished = folder / f"{STATE_FILE}.unfinished"
        torch.save(
            {
                "step": self.step,
                "seconds": self.seconds,
                "network": self._network.state_dict(),
                "optimizers": [each.state_dict() for each in self._optimizers],
            },
            unfinished,
        )
        unfinished.rename(folder / STATE_FILE)

    def load(self, folder: Path) -> bool:
        """Goes on where a saved training stopped; False when there is none."""
        if not (folder / STATE_FILE).is_file():
            return False
        state = torch.load(folder / STATE_FILE, weights_only=True)
        self.step, self.seconds = state["step"], state["seconds"]
        self._network.load_state_dict(state["network"])
        for optimizer, saved in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        return True


def _mean(values: Tensor) -> Tensor:
    """0 of none: not every stage has text, and not every batch has answers of each kind."""
    return values.sum() / max(1, len(values))
