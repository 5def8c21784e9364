"""``python -m benchmarks.quality.training``: trains the model that the repository ships.

Nobody has to: the trained model is in ``benchmarks/quality/model``. It takes at most two hours
on two cores. It saves its state each minute and goes on from there when it is called again.
"""

import sys
from functools import partial
from pathlib import Path

from benchmarks.quality.records import RecordWords
from benchmarks.quality.training.batches import BatchShape, draw_batch
from benchmarks.quality.training.induction import plant_induction
from benchmarks.quality.training.plan import PLAN
from benchmarks.quality.training.recall import recall_by_length
from benchmarks.training.batch import Batch
from benchmarks.training.command import Training, run_command
from benchmarks.training.network import Llama, NetworkShape
from benchmarks.training.prepared import prepare

PROGRAM = "python -m benchmarks.quality.training"
DEFAULT_FOLDER = Path("var/quality")


def main() -> int:
    """Exit status 0, also when training is to be gone on with."""
    return run_command(PROGRAM, str(__doc__), DEFAULT_FOLDER, make_training)


def make_training(folder: Path) -> Training[BatchShape]:
    """All that is trained, before the first step."""
    prepared = prepare(folder, vocab_size=PLAN.vocab_size, report=print)
    words = RecordWords.of_vocabulary(prepared.tokenizer.get_vocab())
    network = Llama(NetworkShape(vocab_size=prepared.tokenizer.get_vocab_size()), seed=PLAN.seed)
    plant_induction(network, seed=PLAN.seed)

    def draw(shape: BatchShape, number: int) -> Batch:
        return draw_batch(prepared.tokens, words, shape, seed=PLAN.seed, number=number)

    return Training(
        plan=PLAN,
        prepared=prepared,
        network=network,
        draw=draw,
        answer_names=("recall",),
        checked_name="recall_by_positions",
        check=partial(recall_by_length, network, PLAN, draw),
    )


if __name__ == "__main__":
    sys.exit(main())
