"""``python -m engine_adapters.runner link``: asks about documents whose states are stored."""

import argparse
import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch

from engine_adapters.codecs.registry import CODEC_NAMES
from engine_adapters.link.errors import LinkError
from engine_adapters.link.split import (
    Splitter,
    paragraphs,
    passages,
    sentences,
    split_fixed,
    split_text,
)
from engine_adapters.restore import LEAST_WAIT_S, Mode
from engine_adapters.runner.engine.engine import TOKEN_BUDGET
from engine_adapters.runner.link.link_runner import LinkRequest
from engine_adapters.runner.link.linked_prompt import EntryName, PromptPart
from engine_adapters.runner.linking import open_linking
from engine_adapters.runner.model.errors import RequestError
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.tokenizer import Tokenizer
from engine_adapters.runner.options import at_least_one, seconds, time_to_live
from engine_adapters.runner.states.state_format import CHUNK_TOKENS
from engine_adapters.runner.turn import StoreOptions
from kvstored_client import RAW

WHOLE = "whole"
TEXT_SPLITS = ("sentence", "paragraph", "passage")
SPLITS = (WHOLE, *TEXT_SPLITS, "fixed")

PASSAGE_CHARACTERS = 2000
SPLIT_TOKENS = 512
"""Tokens of a fixed split (EPIC, section 5)."""


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m engine_adapters.runner link",
        description="Answers a prompt after documents in any order. The states of each document "
        "are computed once, stored, and linked from then on.",
    )
    parser.add_argument("--model", type=Path, required=True, help="Hugging Face model directory")
    parser.add_argument(
        "--document", type=Path, action="append", default=[], help="UTF-8 text; any number of them"
    )
    parser.add_argument("--entry", action="append", default=[], help="id of an entry, after these")
    parser.add_argument("--prompt", required=True, help="text that follows all of them")
    parser.add_argument(
        "--split", choices=SPLITS, default=WHOLE, help="what an entry is (default: a document)"
    )
    parser.add_argument("--split-tokens", type=at_least_one, default=SPLIT_TOKENS)
    parser.add_argument(
        "--method",
        default="attnlink-16",
        help="naive, full, attnlink-K, query-K, split-K or cacheblend-R (default: %(default)s)",
    )
    parser.add_argument("--max-new-tokens", type=at_least_one, default=64)
    parser.add_argument("--ttl", type=time_to_live, metavar="SECONDS", help="of new entries")
    parser.add_argument("--socket", help="session socket of the daemon")
    parser.add_argument("--salt", default="", help="narrows the namespace")
    parser.add_argument("--chunk-tokens", type=at_least_one, default=CHUNK_TOKENS)
    parser.add_argument("--mode", choices=[Mode.KV.value, Mode.HIDDEN.value], default=Mode.KV.value)
    parser.add_argument("--codec", choices=CODEC_NAMES, default=RAW)
    parser.add_argument(
        "--least-wait",
        type=seconds,
        default=LEAST_WAIT_S,
        metavar="SECONDS",
        help="how long the store is waited for at least (default: %(default)s)",
    )
    parser.add_argument("--token-budget", type=at_least_one, default=TOKEN_BUDGET)
    parser.add_argument("--threads", type=at_least_one, help="CPU threads of torch")
    parser.add_argument("--json", action="store_true", help="report as one JSON object")
    return parser


def chunks_of(text: str, split: str, tokenizer: Tokenizer, *, split_tokens: int) -> list[list[int]]:
    """The token ids of the entries of a document, without begin-of-sequence tokens."""
    encode = partial(tokenizer.encode, is_continuation=True)
    if split == "fixed":
        return split_fixed(encode(text), split_tokens)
    splitters: dict[str, Splitter] = {
        WHOLE: lambda whole: [whole],
        "sentence": sentences,
        "paragraph": paragraphs,
        "passage": partial(passages, characters=PASSAGE_CHARACTERS),
    }
    return [encode(piece) for piece in split_text(text, splitters[split])]


def run(arguments: Sequence[str]) -> None:
    """Writes the report; raises ModelError, RequestError, StepError, ValueError and OSError."""
    options = make_parser().parse_args(arguments)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    tokenizer = Tokenizer.from_directory(options.model)
    try:
        texts = [path.read_text(encoding="utf-8") for path in options.document]
    except (OSError, ValueError) as error:
        raise RequestError(f"cannot read a document: {error}") from error
    chunks = [
        chunk
        for text in texts
        for chunk in chunks_of(text, options.split, tokenizer, split_tokens=options.split_tokens)
    ]
    model = Model.from_directory(options.model)
    store = StoreOptions(
        socket=options.socket,
        salt=options.salt,
        chunk_tokens=options.chunk_tokens,
        mode=Mode(options.mode),
        codec=options.codec,
        least_wait_s=options.least_wait,
    )
    try:
        with open_linking(model, options.model, store, token_budget=options.token_budget) as runner:
            entry_ids = runner.generate_context_cache(chunks, ttl_s=options.ttl)
            opening = tokenizer.encode("")
            question = tokenizer.encode(options.prompt, is_continuation=True)
            names = [EntryName(entry_id) for entry_id in (*entry_ids, *options.entry)]
            parts: list[PromptPart] = [opening, *names, question]
            completion = runner.link(
                LinkRequest(
                    parts=parts, new_tokens_max=options.max_new_tokens, method=options.method
                )
            )
    except LinkError as error:
        raise RequestError(str(error)) from error
    fields = {
        "entries": entry_ids,
        "prompt_tokens": completion.prompt_tokens,
        "restored_tokens": completion.restore.restored_tokens,
        "computed_tokens": completion.computed_tokens,
        "device_bytes": completion.restore.device_bytes,
        "dram_bytes": completion.restore.dram_bytes,
        "ttft_s": completion.ttft_s,
        "generated_ids": list(completion.generated_ids),
        "generated_text": tokenizer.decode(completion.generated_ids),
    }
    if options.json:
        sys.stdout.write(json.dumps(fields) + "\n")
    else:
        sys.stdout.write("".join(f"{name}: {value}\n" for name, value in fields.items()))
