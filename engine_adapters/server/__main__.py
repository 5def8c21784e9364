"""Serves a model until SIGTERM: ``python -m engine_adapters.server --help``."""

import argparse
import asyncio
import logging
import sys

import torch

from engine_adapters.processor import avoid_broken_tiles
from engine_adapters.runner.model.model import Model
from engine_adapters.server.api_keys import ApiKeys
from engine_adapters.server.http.serving import serve
from engine_adapters.server.opened import namespaces_of_daemon, opened
from engine_adapters.server.options import engine_of, limits_of, make_parser, place_of, store_of


def run(options: argparse.Namespace) -> None:
    """Serves; raises KeysError, ModelError or another ValueError, and OSError."""
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    keys = ApiKeys({}) if options.keys is None else ApiKeys.from_file(options.keys)
    dtype = None if options.dtype is None else getattr(torch, options.dtype)
    model = Model.from_directory(options.model, dtype=dtype, device=options.device)
    name = options.name or options.model.resolve().name
    open_namespace = namespaces_of_daemon(
        model, options.model, store_of(options), token_budget=options.token_budget
    )

    def tell(url: str) -> None:
        sys.stdout.write(f"serving {name} at {url}\n")
        sys.stdout.flush()

    with opened(
        model,
        options.model,
        open_namespace,
        name=name,
        options=engine_of(options),
        limits=limits_of(options),
        keys=keys,
    ) as service:
        asyncio.run(serve(service, place_of(options), on_ready=tell))


def main() -> int:
    """Exit status 0, or 2 with one sentence for what cannot be served."""
    avoid_broken_tiles()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    try:
        run(make_parser().parse_args())
    except (OSError, ValueError) as error:
        sys.stderr.write(f"server: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
