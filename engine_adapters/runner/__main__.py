"""Takes one turn of a conversation: ``python -m engine_adapters.runner --help``.

``python -m engine_adapters.runner calibrate --help`` measures the machine for a model,
``inspect --help`` shows what its states take, ``link --help`` asks about documents whose states are
stored.
"""

import argparse
import json
import sys
from pathlib import Path

import torch

from engine_adapters.codecs.registry import CODEC_NAMES
from engine_adapters.processor import avoid_broken_tiles
from engine_adapters.restore import LEAST_WAIT_S, Mode, Preload
from engine_adapters.runner import calibrate_command, inspect_command, link_command
from engine_adapters.runner.calibrate.read_costs import CalibrationError
from engine_adapters.runner.engine.engine import TOKEN_BUDGET
from engine_adapters.runner.engine.sampling import Sampling
from engine_adapters.runner.model.errors import RequestError, StepError
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.model_config import DTYPES
from engine_adapters.runner.model.tokenizer import Tokenizer
from engine_adapters.runner.options import at_least_one, seconds
from engine_adapters.runner.states.state_format import CHUNK_TOKENS
from engine_adapters.runner.turn import ConversationOptions, StoreOptions, TurnReport, take_turn
from kvstored_client import RAW, Order


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m engine_adapters.runner",
        description="Takes one turn of a conversation and reports what it cost.",
        epilog="`calibrate MODEL` measures this machine for a model; `inspect MODEL` shows the "
        "sizes of its states and what each mode stores; `link` asks about stored documents.",
    )
    parser.add_argument("--model", type=Path, required=True, help="Hugging Face model directory")
    _add_prompt(parser)
    sampling = parser.add_argument_group("sampling")
    sampling.add_argument("--max-new-tokens", type=int, default=64)
    sampling.add_argument("--temperature", type=float, default=0.0, help="0 is greedy")
    sampling.add_argument("--top-p", type=float, default=1.0)
    sampling.add_argument("--seed", type=int, default=0)
    store = parser.add_argument_group("store")
    store.add_argument("--no-store", action="store_true", help="neither restore nor save")
    store.add_argument("--no-save", action="store_true", help="restore only")
    store.add_argument("--socket", help="session socket of the daemon")
    store.add_argument("--salt", default="", help="narrows the namespace")
    store.add_argument("--arena-bytes", help="default: what fits the model, 256 MiB to 4 GiB")
    store.add_argument("--chunk-tokens", type=int, default=CHUNK_TOKENS)
    store.add_argument(
        "--mode",
        choices=[mode.value for mode in Mode],
        default=Mode.AUTO.value,
        help="what is stored of each layer (default: auto, by the profile of `calibrate`)",
    )
    store.add_argument(
        "--codec",
        choices=CODEC_NAMES,
        default=RAW,
        help="what is stored of the states: all bits (raw, zstd), or fewer (default: raw)",
    )
    store.add_argument("--profile", type=Path, help="cost profile (default: the user's cache)")
    store.add_argument(
        "--order",
        choices=[order.name.lower() for order in Order],
        default="layer_first",
        help="in which chunks of a span are read; only layer_first overlaps with computing",
    )
    store.add_argument(
        "--least-wait",
        type=seconds,
        default=LEAST_WAIT_S,
        metavar="SECONDS",
        help="how long the store is waited for at least, however little there is to compute "
        "(default: %(default)s)",
    )
    store.add_argument(
        "--preload",
        choices=[preload.value for preload in Preload],
        default=Preload.AUTO.value,
        help="how a history comes: layer after layer, while new tokens are computed in those that "
        "are there, or span after span, before they are; auto takes layers for a conversation "
        "where the profile says that it is faster (default: auto)",
    )
    compute = parser.add_argument_group("compute")
    compute.add_argument(
        "--device",
        default="cuda" if torch.cuda.is_available() else "cpu",
        help="cpu, cuda, cuda:1, ... (default: cuda where there is one)",
    )
    compute.add_argument("--dtype", choices=DTYPES, help="default: the model's")
    compute.add_argument("--threads", type=at_least_one, help="CPU threads of torch")
    compute.add_argument(
        "--token-budget", type=at_least_one, default=TOKEN_BUDGET, help="tokens per step"
    )
    parser.add_argument("--json", action="store_true", help="report as one JSON object")
    return parser


def _add_prompt(parser: argparse.ArgumentParser) -> None:
    prompt = parser.add_argument_group(
        "prompt", "the conversation so far, then the new text; at least one of them"
    )
    prompt.add_argument("--token-file", type=Path, help="JSON list of token ids so far")
    prompt.add_argument("--prompt-file", type=Path, help="UTF-8 text that follows")
    prompt.add_argument("--prompt", help="text that follows both")
    prompt.add_argument(
        "--conversation",
        metavar="NAME",
        help="continue the conversation that the store keeps under this name: the prompt is "
        "the new turn alone",
    )
    prompt.add_argument(
        "--sink-tokens",
        type=int,
        default=0,
        help="first tokens of a conversation that stay when it exceeds the model's window; "
        "of the others the first half is dropped (default: 0)",
    )
    prompt.add_argument(
        "--token-output", type=Path, help="write the whole conversation here, as --token-file"
    )


def read_prompt(
    options: argparse.Namespace, tokenizer: Tokenizer, *, is_continuation: bool = False
) -> list[int]:
    """Token ids of the conversation so far and of the new text; raises RequestError.

    ``is_continuation``: the store has something that comes before them.
    """
    token_ids: list[int] = []
    try:
        if options.token_file is not None:
            token_ids = json.loads(options.token_file.read_text(encoding="utf-8"))
        text = ""
        if options.prompt_file is not None:
            text = options.prompt_file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise RequestError(f"cannot read the prompt: {error}") from error
    if not isinstance(token_ids, list) or not all(type(token) is int for token in token_ids):
        raise RequestError(f"{options.token_file} must hold a JSON list of token ids")
    text += options.prompt or ""
    if not text:
        return token_ids
    return token_ids + tokenizer.encode(text, is_continuation=is_continuation or bool(token_ids))


def describe(report: TurnReport, text: str) -> dict[str, object]:
    """The report as JSON values; token counts, bytes and seconds."""
    completion = report.completion
    restore = completion.restore
    return {
        "prompt_tokens": completion.prompt_tokens,
        "restored_tokens": restore.restored_tokens,
        "computed_tokens": completion.computed_tokens,
        "device_bytes": restore.device_bytes,
        "dram_bytes": restore.dram_bytes,
        "restore_s": restore.duration_s,
        "waited_s": restore.waited_s,
        "meeting_token": restore.meeting_token,
        "is_by_layers": restore.is_by_layers,
        "is_cake": report.choice is not None and report.choice.is_cake,
        "schedule": None if report.choice is None else str(report.choice.schedule),
        "codec": report.codec,
        "cut_tokens": sum(cut.dropped_count for cut in completion.cuts),
        "ttft_s": completion.ttft_s,
        "duration_s": completion.duration_s,
        "generated_ids": list(completion.generated_ids),
        "generated_text": text,
        "saved_tokens": report.save.saved_tokens,
        "dropped_tokens": report.save.dropped_tokens,
        "counters": report.counters,
    }


def run(options: argparse.Namespace) -> None:
    """Takes the turn and writes the report.

    Raises ModelError, RequestError, ModeError, ProfileError or another ValueError, and
    OSError for a file that cannot be read or written.
    """
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    tokenizer = Tokenizer.from_directory(options.model)
    prompt = read_prompt(options, tokenizer, is_continuation=options.conversation is not None)
    conversation = None
    if options.conversation is not None:
        conversation = ConversationOptions(
            name=options.conversation,
            opening=read_prompt(options, tokenizer),
            sink_tokens=options.sink_tokens,
        )
    dtype = None if options.dtype is None else getattr(torch, options.dtype)
    model = Model.from_directory(options.model, dtype=dtype, device=options.device)
    store = StoreOptions(
        socket=options.socket,
        salt=options.salt,
        arena_bytes=options.arena_bytes,
        chunk_tokens=options.chunk_tokens,
        mode=Mode(options.mode),
        profile=options.profile,
        codec=options.codec,
        order=Order[options.order.upper()],
        saves=not options.no_save,
        least_wait_s=options.least_wait,
        preload=Preload(options.preload),
    )
    report = take_turn(
        model,
        options.model,
        prompt,
        new_tokens_max=options.max_new_tokens,
        sampling=Sampling(temperature=options.temperature, top_p=options.top_p, seed=options.seed),
        store=None if options.no_store else store,
        token_budget=options.token_budget,
        conversation=conversation,
    )
    if options.token_output is not None:
        token_ids = json.dumps(report.completion.token_ids)
        options.token_output.write_text(token_ids, encoding="utf-8")
    if report.choice is not None and report.choice.note:
        sys.stderr.write(f"runner: {report.choice.note}\n")
    text = tokenizer.decode(report.completion.generated_ids)
    fields = describe(report, text)
    if options.json:
        sys.stdout.write(json.dumps(fields) + "\n")
    else:
        sys.stdout.write("".join(f"{name}: {value}\n" for name, value in fields.items()))


def main() -> int:
    """Exit status 0, or 2 with one sentence for what cannot be run."""
    avoid_broken_tiles()
    try:
        if sys.argv[1:2] == ["calibrate"]:
            calibrate_command.run(sys.argv[2:])
        elif sys.argv[1:2] == ["inspect"]:
            inspect_command.run(sys.argv[2:])
        elif sys.argv[1:2] == ["link"]:
            link_command.run(sys.argv[2:])
        else:
            run(make_parser().parse_args())
    except (CalibrationError, OSError, StepError, ValueError) as error:
        sys.stderr.write(f"runner: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
