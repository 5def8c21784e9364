"""``python -m benchmarks.pic.training``: trains the model that links are judged with.

Nobody has to: the trained model is in ``benchmarks/pic/model``. It takes a few minutes on two
cores. It saves its state each minute and goes on from there when it is called again.
"""

import sys
from functools import partial
from pathlib import Path

from benchmarks.pic.facts.library import JUDGED, Signs
from benchmarks.pic.training.answered import answered_by_kind
from benchmarks.pic.training.batches import KINDS, BatchShape, Sources, draw_batch
from benchmarks.pic.training.plan import PLAN, POSITIONS, THETA
from benchmarks.pic.training.reading_heads import plant_reading
from benchmarks.quality.records import RecordWords
from benchmarks.training.batch import Batch
from benchmarks.training.command import Training, run_command
from benchmarks.training.network import Llama, NetworkShape
from benchmarks.training.prepared import Prepared, prepare

PROGRAM = "python -m benchmarks.pic.training"
DEFAULT_FOLDER = Path("var/pic")
FILLER = "."


def main() -> int:
    """Exit status 0, also when training is to be gone on with."""
    return run_command(PROGRAM, str(__doc__), DEFAULT_FOLDER, make_training)


def make_training(folder: Path) -> Training[BatchShape]:
    """All that is trained, before the first step."""
    prepared = prepare(folder, vocab_size=PLAN.vocab_size, report=print)
    sources = sources_of(prepared)
    shape = NetworkShape(
        vocab_size=prepared.tokenizer.get_vocab_size(), position_count=POSITIONS, theta=THETA
    )
    network = Llama(shape, seed=PLAN.seed)
    plant_reading(network, sink_id=sources.signs.document, seed=PLAN.seed)

    def draw(shape: BatchShape, number: int) -> Batch:
        return draw_batch(sources, shape, seed=PLAN.seed, number=number)

    return Training(
        plan=PLAN,
        prepared=prepared,
        network=network,
        draw=draw,
        answer_names=tuple(kind.value for kind in KINDS),
        checked_name="answered_by_kind",
        check=partial(answered_by_kind, network, sources, JUDGED, seed=PLAN.seed),
    )


def sources_of(prepared: Prepared) -> Sources:
    """Signs and words of the tokenizer, and the text."""
    vocabulary = prepared.tokenizer.get_vocab()
    return Sources(
        signs=Signs.of_vocabulary(vocabulary),
        words=RecordWords.of_vocabulary(vocabulary).words,
        text=prepared.tokens.tolist(),
        filler=vocabulary[FILLER],
    )


if __name__ == "__main__":
    sys.exit(main())
