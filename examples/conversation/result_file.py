"""What the job measured, as a file that says where it comes from."""

import json
from dataclasses import asdict
from typing import Any

from examples.conversation.job import JobResult
from examples.conversation.repeated import Repeated
from examples.conversation.runner_process import TurnResult
from kvstored.evidence import Provenance

_UNPUBLISHED = ("generated_ids",)
"""The file says instead whether they are equal."""


def to_json(result: JobResult, provenance: Provenance) -> str:
    """All turns, with the store and without, and the last one from both ends; its repetitions.

    ``overflow`` is the other conversation, with what was said in it, and ``linked`` the request of
    four documents.

    Bytes and tokens as counted, ``ttft_s`` in seconds, ``gain`` without unit.
    """
    ends = result.both_ends
    document = {
        **provenance.to_document(),
        "turns": [
            {
                "number": turn.number,
                "history_tokens": turn.history_tokens,
                "tokens_equal": turn.tokens_equal,
                "gain": turn.recomputed.ttft_s / turn.stored.ttft_s,
                "stored": _numbers(turn.stored),
                "recomputed": _numbers(turn.recomputed),
            }
            for turn in result.turns
        ],
        "overflow": asdict(result.overflow),
        "linked": asdict(result.linked),
        "both_ends": {
            "device_bytes_per_s": ends.bytes_per_s,
            "history_tokens": ends.history_tokens,
            "tokens_equal": ends.tokens_equal,
            "both": _numbers(ends.both),
            "loaded": _numbers(ends.loaded),
            "computed": _numbers(ends.computed),
        },
    }
    if result.repeated is not None:
        document["repeated"] = _repeated(result.repeated)
    return f"{json.dumps(document, indent=2)}\n"


def _numbers(turn: TurnResult) -> dict[str, Any]:
    return {key: value for key, value in asdict(turn).items() if key not in _UNPUBLISHED}


def _repeated(repeated: Repeated) -> dict[str, Any]:
    return {
        "is_disturbed": repeated.is_disturbed,
        "over_better_max": repeated.over_better_max,
        "over_oracle_median": repeated.over_oracle_median,
        "runs": [
            {
                "tokens_equal": run.tokens_equal,
                "over_better": run.over_better,
                "over_oracle": run.over_oracle,
                "oracle_s": run.oracle_s,
                "both": _numbers(run.both),
                "loaded": _numbers(run.loaded),
                "computed": _numbers(run.computed),
            }
            for run in repeated.runs
        ],
    }
