"""Times on the command line."""

import argparse
import re

TIMEOUT_S = 60.0
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_TIME = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")
TIMEOUT_S_MAX = 600.0


def seconds(text: str) -> float:
    """A time such as ``90``, ``15m``, ``2h`` or ``1d``; raises ArgumentTypeError."""
    match = _TIME.fullmatch(text)
    if match is None or not float(match[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write one such as 90s, 15m or 2h")
    return float(match[1]) * _SECONDS[match[2]]


def timeout(text: str) -> float:
    """As ``seconds``, at most TIMEOUT_S_MAX."""
    value = seconds(text)
    if value > TIMEOUT_S_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is more than {TIMEOUT_S_MAX:.0f} s")
    return value


def add_timeout(verb: argparse.ArgumentParser, what: str) -> None:
    """Adds ``--timeout``."""
    verb.add_argument(
        "--timeout",
        type=timeout,
        default=TIMEOUT_S,
        metavar="TIME",
        help=f"{what}, such as 90s or 5m (default: {TIMEOUT_S:.0f} s)",
    )


def time_text(value_s: float) -> str:
    """A time for people: its two largest units."""
    left, parts = round(value_s), []
    for name, size in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {name}")
    return " ".join(parts[:2]) or "0 s"
