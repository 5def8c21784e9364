"""The command of a training: it goes on where it stopped, says how it goes, and leaves a model."""

import argparse
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic

import torch

from benchmarks.training.batch import Batch
from benchmarks.training.checkpoint import write_checkpoint
from benchmarks.training.network import Llama
from benchmarks.training.plan import Plan, ShapeT
from benchmarks.training.prepared import Prepared
from benchmarks.training.trainer import SAVED_EVERY_S, SECONDS_MAX, Losses, Trainer
from engine_adapters.processor import avoid_broken_tiles

SHOWN_STEPS = 50
THREADS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Training(Generic[ShapeT]):
    """What the training of one model is made of.

    ``answer_names`` name the kinds of answers. ``check`` says which share of answers is right by
    now, by a name for each setting; the note of the model has that under ``checked_name``.
    """

    plan: Plan[ShapeT]
    prepared: Prepared
    network: Llama
    draw: Callable[[ShapeT, int], Batch]
    answer_names: tuple[str, ...]
    checked_name: str
    check: Callable[[], Mapping[str, float]]

    def trainer(self) -> Trainer[ShapeT]:
        """At its first step."""
        return Trainer(self.network, self.plan, self.draw, answer_kinds=len(self.answer_names))

    def note(self, program: str, trainer: Trainer[ShapeT]) -> dict[str, object]:
        """How the model came about."""
        return {
            "program": program,
            "parameters": sum(each.numel() for each in self.network.parameters()),
            "seed": self.plan.seed,
            "steps": trainer.step,
            "tokens": self.plan.tokens(trainer.step),
            self.checked_name: {name: round(share, 3) for name, share in self.check().items()},
            "seconds": round(trainer.seconds),
            "threads": torch.get_num_threads(),
            "versions": {"python": platform.python_version(), "torch": torch.__version__},
            "text_tokens": len(self.prepared.tokens),
            "text_characters": sum(self.prepared.sources.values()),
            "text_characters_by_package": self.prepared.sources,
        }


def run_command(
    program: str, description: str, folder: Path, make: Callable[[Path], Training[ShapeT]]
) -> int:
    """Exit status 0, also when training is to be gone on with.

    ``make`` gets the folder of all files, ``folder`` unless the command line names another one.
    """
    options = _parser(program, description, folder).parse_args()
    avoid_broken_tiles()
    torch.set_num_threads(options.threads)
    training = make(options.folder)
    trainer = training.trainer()
    for package, characters in training.prepared.sources.items():
        print(f"{characters:>10} characters of {package}")
    print(f"{len(training.prepared.tokens)} tokens of text")
    if trainer.load(options.folder):
        print(f"going on after step {trainer.step} and {trainer.seconds:.0f} s")
    progress = _Progress(training, trainer)
    deadline_s = time.perf_counter() + options.seconds
    left_s = options.seconds
    while not trainer.is_over and left_s > 0:
        trainer.run(min(SAVED_EVERY_S, left_s), progress.show)
        trainer.save(options.folder)
        left_s = deadline_s - time.perf_counter()
    if trainer.is_over:
        note = training.note(program, trainer)
        directory = options.folder / "model"
        write_checkpoint(directory, training.network, training.prepared.tokenizer, note)
        print(f"the model is in {directory}")
    return 0


class _Progress(Generic[ShapeT]):
    """Prints a line every so many steps, with means since the last one."""

    def __init__(self, training: Training[ShapeT], trainer: Trainer[ShapeT]) -> None:
        self._training = training
        self._trainer = trainer
        self._since: list[Losses] = []
        self._begun_s = time.perf_counter()

    def show(self, step: int, losses: Losses) -> None:
        """To be called after each step."""
        self._since.append(losses)
        if step % SHOWN_STEPS:
            return
        count = len(self._since)
        seconds = (time.perf_counter() - self._begun_s) / count
        text = sum(each.text for each in self._since) / count
        answers = [
            f"{name} {sum(nats) / count:.3f} ({sum(shares) / count:.1%})"
            for name, nats, shares in zip(
                self._training.answer_names,
                zip(*(each.answers for each in self._since), strict=True),
                zip(*(each.right_shares for each in self._since), strict=True),
                strict=True,
            )
        ]
        right = [f"{share:.0%} at {name}" for name, share in self._training.check().items()]
        print(
            f"step {step}: text {text:.3f}, {', '.join(answers)}, {seconds:.2f} s a step, "
            f"{self._trainer.seconds:.0f} s; right are {', '.join(right)}",
            flush=True,
        )
        self._since.clear()
        self._begun_s = time.perf_counter()


def _parser(program: str, description: str, folder: Path) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument(
        "--folder", type=Path, default=folder, help="text, state and model (%(default)s)"
    )
    parser.add_argument(
        "--threads", type=int, default=THREADS, help="threads that compute (%(default)s)"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=SECONDS_MAX,
        help="stop after so many and go on at the next call (%(default)s)",
    )
    return parser
