"""Training step by step, to be interrupted at any time and gone on with later."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_
from torch.optim import AdamW, Muon, Optimizer

from benchmarks.quality.training.batches import IGNORED, Batch, draw_batch
from benchmarks.quality.training.network import Llama
from benchmarks.quality.training.plan import Plan
from benchmarks.quality.training.prepared import Prepared

STATE_FILE = "training.pt"
SECONDS_MAX = 7200
"""Training takes no longer, by its own clock."""
SAVED_EVERY_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """Nats per token of text and of recalled values, and which share of these came out first."""

    text: float
    recall: float
    recalled_share: float


class Trainer:
    """A network and its optimizers. One thread only.

    What step n does depends on the plan, the text and n alone, so a training that was
    interrupted ends with the same weights as one that was not.
    """

    def __init__(self, network: Llama, plan: Plan, prepared: Prepared) -> None:
        self.step = 0
        self.seconds = 0.0
        self._network = network
        self._plan = plan
        self._prepared = prepared
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
        batch = draw_batch(
            self._prepared.tokens,
            self._prepared.words,
            plan.batch(self.step),
            seed=plan.seed,
            number=self.step,
        )
        loss, losses = self._losses(batch)
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
        targets, recalled = batch.targets[counts], batch.recalled[counts]
        with torch.autocast("cpu", torch.bfloat16):
            logits = self._network(batch.inputs, counts)
        each = cross_entropy(logits.float(), targets, reduction="none")
        text, recall = _mean(each[~recalled]), _mean(each[recalled])
        hits = (logits[recalled].argmax(-1) == targets[recalled]).float()
        losses = Losses(text=text.item(), recall=recall.item(), recalled_share=_mean(hits).item())
        return text + self._plan.recall_weight * recall, losses

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
    """0 of none: not every stage has text, and not every batch has records."""
    return values.sum() / max(1, len(values))
