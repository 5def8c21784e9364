"""``python -m benchmarks.quality.training``: trains the model that the repository ships.

Nobody has to: the trained model is in ``benchmarks/quality/model``. It takes at most two hours
on two cores. It saves its state each minute and goes on from there when it is called again.
"""

import argparse
import sys
import time
from pathlib import Path

import torch

from benchmarks.quality.training.checkpoint import write_checkpoint
from benchmarks.quality.training.induction import plant_induction
from benchmarks.quality.training.network import Llama, NetworkShape
from benchmarks.quality.training.plan import Plan
from benchmarks.quality.training.prepared import Prepared, prepare
from benchmarks.quality.training.recall import recall_by_length
from benchmarks.quality.training.trainer import SAVED_EVERY_S, SECONDS_MAX, Losses, Trainer
from engine_adapters.processor import avoid_broken_tiles

DEFAULT_FOLDER = Path("var/quality")
SHOWN_STEPS = 50
THREADS = 2


def main() -> int:
    """Exit status 0, also when training is to be gone on with."""
    options = _parser().parse_args()
    avoid_broken_tiles()
    torch.set_num_threads(options.threads)
    plan = Plan()
    prepared = prepare(options.folder, vocab_size=plan.vocab_size, report=print)
    network = Llama(NetworkShape(vocab_size=prepared.tokenizer.get_vocab_size()), seed=plan.seed)
    plant_induction(network, seed=plan.seed)
    trainer = Trainer(network, plan, prepared)
    for package, characters in prepared.sources.items():
        print(f"{characters:>10} characters of {package}")
    print(f"{len(prepared.tokens)} tokens of text, {len(prepared.words.words)} words for records")
    if trainer.load(options.folder):
        print(f"going on after step {trainer.step} and {trainer.seconds:.0f} s")
    progress = _Progress(trainer, network, plan, prepared)
    deadline_s = time.perf_counter() + options.seconds
    left_s = options.seconds
    while not trainer.is_over and left_s > 0:
        trainer.run(min(SAVED_EVERY_S, left_s), progress.show)
        trainer.save(options.folder)
        left_s = deadline_s - time.perf_counter()
    if trainer.is_over:
        write_checkpoint(options.folder / "model", network, trainer, plan, prepared)
        print(f"the model is in {options.folder / 'model'}")
    return 0


class _Progress:
    """Prints a line every so many steps, with means since the last one."""

    def __init__(self, trainer: Trainer, network: Llama, plan: Plan, prepared: Prepared) -> None:
        self._trainer = trainer
        self._network = network
        self._plan = plan
        self._prepared = prepared
        self._since: list[Losses] = []
        self._begun_s = time.perf_counter()

    def show(self, step: int, losses: Losses) -> None:
        """To be called after each step."""
        self._since.append(losses)
        if step % SHOWN_STEPS:
            return
        count = len(self._since)
        now_s = time.perf_counter()
        text, recall, share = (
            sum(values) / count
            for values in (
                [each.text for each in self._since],
                [each.recall for each in self._since],
                [each.recalled_share for each in self._since],
            )
        )
        shares = recall_by_length(self._network, self._plan, self._prepared)
        recalled = ", ".join(f"{each:.0%} at {positions}" for positions, each in shares.items())
        print(
            f"step {step}: text {text:.3f}, recall {recall:.3f} ({share:.1%}), "
            f"{(now_s - self._begun_s) / count:.2f} s a step, {self._trainer.seconds:.0f} s; "
            f"recalls {recalled}",
            flush=True,
        )
        self._since.clear()
        self._begun_s = time.perf_counter()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quality.training", description=__doc__
    )
    parser.add_argument(
        "--folder", type=Path, default=DEFAULT_FOLDER, help="text, state and model (%(default)s)"
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


if __name__ == "__main__":
    sys.exit(main())
