"""Goes on with one document in two ways, with the small trained Llama and transformers.

python examples/transformers_prefix.py [SOCKET]

The states of the document are stored with the first answer and restored for the second one. Run it
again: that process restores them for both.
"""

import sys
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoTokenizer, LlamaForCausalLM

from benchmarks.quality.model import DTYPE, trained_model
from engine_adapters.transformers import KvstoredCache
from kvstored_client import Client

LINES = """A backup of all files is made every night, at a time when few programs need the
server. Before it begins, the server writes all changes that are still in memory to the disk, so
that the backup has them. Files that have not changed since the last backup are not copied again:
the new backup refers to the old copy. Programs can read and write files while the backup is made.
A file that is written at this time is copied twice, and the second copy is the one that counts. If
the disk is full, the oldest backup is removed and a message is sent to the administrator. If there
is no other backup, the server stops and prints an error. To restore a file, give its name and the
date of the backup. If no date is given, the last backup is used. The file is written to a new
name, so that the current file is not lost. Backups can be encrypted with a key. The key is not
part of the backup, and without it no file can be restored, so keep a copy of it in another place.
The size and the date of each backup are printed by the list command, and the number of files in
it. Some notes for later; wide signature; cursor filename; turn history; three sockets; side
warning; hard transfer; matching pair; real suffix; screen amount; top boolean."""
DOCUMENT = " ".join(LINES.split())
REPETITION_PENALTY = 1.15
"""Without it, small models repeat themselves."""


@dataclass(frozen=True, slots=True)
class Question:
    """How the text goes on after the document, and how many tokens the answer has.

    The model was trained to go on with sentences, and to recall pairs of words that it has read.
    """

    text: str
    answer_tokens: int


QUESTIONS = (Question(" If the disk is full,", 11), Question("; turn", 1))


def main() -> int:
    """Whether each answer has the tokens that it has without a store: the exit status."""
    folder = trained_model()
    model = LlamaForCausalLM.from_pretrained(folder, dtype=DTYPE).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    are_equal = True
    with Client(sys.argv[1] if len(sys.argv) > 1 else None) as client:
        for number, question in enumerate(QUESTIONS, start=1):
            inputs = tokenizer(DOCUMENT + question.text, return_tensors="pt")
            options: dict[str, Any] = {
                "max_new_tokens": question.answer_tokens,
                "do_sample": False,
                "repetition_penalty": REPETITION_PENALTY,
            }
            plain = model.generate(**inputs, **options)

            cache = KvstoredCache(model, **inputs, client=client)
            output = model.generate(**inputs, past_key_values=cache, **options)
            stored = cache.save(is_durable=True)

            is_equal = torch.equal(output, plain)
            are_equal &= is_equal
            prompt_tokens = inputs["input_ids"].shape[1]
            answer = tokenizer.decode(output[0, prompt_tokens:])
            print(
                f"question {number}: {cache.restored_tokens} of {prompt_tokens} tokens restored, "
                f"{stored} chunks stored, the same answer as without a store: {is_equal}"
            )
            print(f"  ...{question.text} -> {' '.join(answer.split())}")
    return 0 if are_equal else 1


if __name__ == "__main__":
    sys.exit(main())
