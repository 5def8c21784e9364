"""The command line of the server."""

import argparse
from pathlib import Path

import torch

from engine_adapters.codecs.registry import CODEC_NAMES
from engine_adapters.restore import LEAST_WAIT_S, Mode
from engine_adapters.runner.engine.engine import REQUESTS_MAX, TOKEN_BUDGET
from engine_adapters.runner.options import at_least_one, seconds
from engine_adapters.runner.states.state_format import CHUNK_TOKENS
from engine_adapters.runner.turn import StoreOptions
from engine_adapters.server.http.serving import Place
from engine_adapters.server.opened import EngineOptions
from engine_adapters.server.protocol.limits import Limits
from kvstored_client import RAW

DTYPES = ("float32", "bfloat16", "float16")
DRAIN_S = 30.0


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m engine_adapters.server",
        description="Serves a model as OpenAI's server does. Histories, context caches and "
        "conversations are kept in kvstored.",
    )
    parser.add_argument("--model", type=Path, required=True, help="Hugging Face model directory")
    parser.add_argument("--name", help="the model's name for clients (default: its directory's)")
    _add_place(parser)
    _add_limits(parser)
    _add_store(parser)
    _add_engine(parser)
    return parser


def place_of(options: argparse.Namespace) -> Place:
    """Where to listen."""
    return Place(host=options.host, port=options.port, drain_s=options.drain)


def limits_of(options: argparse.Namespace) -> Limits:
    """What one request may ask for."""
    return Limits(
        body_bytes=options.max_body_bytes,
        prompt_tokens=options.max_prompt_tokens,
        new_tokens=options.max_new_tokens,
        waiting_max=options.max_waiting,
    )


def store_of(options: argparse.Namespace) -> StoreOptions:
    """How the store is used."""
    return StoreOptions(
        socket=options.socket,
        salt=options.salt,
        chunk_tokens=options.chunk_tokens,
        mode=Mode(options.mode),
        codec=options.codec,
        least_wait_s=options.least_wait,
    )


def engine_of(options: argparse.Namespace) -> EngineOptions:
    """Sizes of the engine."""
    return EngineOptions(
        cache_tokens=options.cache_tokens,
        token_budget=options.token_budget,
        running_max=options.max_running,
    )


def _add_place(parser: argparse.ArgumentParser) -> None:
    place = parser.add_argument_group("clients")
    place.add_argument("--host", default="127.0.0.1", help="(default: %(default)s)")
    place.add_argument("--port", type=_port, default=8000, help="(default: %(default)s)")
    place.add_argument(
        "--keys",
        type=Path,
        help='TOML file with a line "KEY" = "NAMESPACE" for each API key (default: no keys, and '
        "one namespace for all)",
    )
    place.add_argument(
        "--drain",
        type=seconds,
        default=DRAIN_S,
        metavar="SECONDS",
        help="how long requests may go on after SIGTERM (default: %(default)s)",
    )


def _add_limits(parser: argparse.ArgumentParser) -> None:
    usual = Limits()
    limits = parser.add_argument_group("limits")
    for name, value, text in (
        ("--max-body-bytes", usual.body_bytes, "of a request; more is answered with 413"),
        ("--max-prompt-tokens", usual.prompt_tokens, "of a request; more is answered with 400"),
        ("--max-new-tokens", usual.new_tokens, "that a request may ask for"),
        ("--max-running", REQUESTS_MAX, "requests that are computed together"),
        ("--max-waiting", usual.waiting_max, "requests beside them; more are answered with 429"),
    ):
        limits.add_argument(
            name, type=at_least_one, default=value, help=f"{text} (default: %(default)s)"
        )


def _add_store(parser: argparse.ArgumentParser) -> None:
    store = parser.add_argument_group("store")
    store.add_argument("--socket", help="session socket of the daemon")
    store.add_argument("--salt", default="", help="narrows all namespaces")
    store.add_argument("--chunk-tokens", type=at_least_one, default=CHUNK_TOKENS)
    store.add_argument("--mode", choices=[Mode.KV.value, Mode.HIDDEN.value], default=Mode.KV.value)
    store.add_argument("--codec", choices=CODEC_NAMES, default=RAW)
    store.add_argument(
        "--least-wait",
        type=seconds,
        default=LEAST_WAIT_S,
        metavar="SECONDS",
        help="how long the store is waited for at least (default: %(default)s)",
    )


def _add_engine(parser: argparse.ArgumentParser) -> None:
    engine = parser.add_argument_group("engine")
    engine.add_argument(
        "--device",
        default="cuda" if torch.cuda.is_available() else "cpu",
        help="cpu, cuda, cuda:1, ... (default: cuda where there is one)",
    )
    engine.add_argument("--dtype", choices=DTYPES, help="default: the model's")
    engine.add_argument("--threads", type=at_least_one, help="CPU threads of torch")
    engine.add_argument(
        "--token-budget", type=at_least_one, default=TOKEN_BUDGET, help="tokens per step"
    )
    engine.add_argument(
        "--cache-tokens",
        type=at_least_one,
        help="tokens of all requests that run together (default: the model's positions)",
    )


def _port(text: str) -> int:
    """0 takes a free one."""
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port from 0 to 65535")
    return int(text)
