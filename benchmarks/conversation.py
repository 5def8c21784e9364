"""Time to the first token with a restored history and without, over history lengths.

Each length is a prefix of the longest history, which is saved once. Then a turn after it is
taken again and again, in turn with a store and without. The daemon's DRAM is too small for
the longest history, so that most of that comes from the devices, and short ones from DRAM; the
table says how many bytes came from where.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.benchmark import Benchmark, Settings
from benchmarks.document import document_tokens, random_model
from benchmarks.interleave import Alternative, Group, Measured, Rounds, interleave, ratios
from benchmarks.kit.daemon_process import DaemonOptions, DaemonProcess
from benchmarks.report import Series, Summary
from benchmarks.scratch import scratch_folder
from engine_adapters.runner.engine.sampling import Sampling
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.turn import StoreOptions, TurnReport, take_turn

GIB = 1024**3
DEVICE_BYTES = 2 * GIB
DRAM_BYTES = 64 * 1024 * 1024
ARENA_BYTES = GIB
NEW_TOKENS = 16
"""Generated in each turn and compared."""

QUESTION_TOKENS = 48
"""New tokens of the second turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """History lengths in tokens, and how often each is measured."""

    history_tokens: tuple[int, ...]
    rounds: Rounds


FULL = Scale(
    history_tokens=(1024, 2048, 4096, 8192),
    rounds=Rounds(count=9, count_min=7, time_limit_s=900.0),
)
QUICK = Scale(
    history_tokens=(1024, 4096),
    rounds=Rounds(count=7, count_min=7, time_limit_s=120.0),
)


class Conversation:
    """One model and one text, taken with the store or without."""

    def __init__(self, directory: Path, socket: Path, *, tokens_max: int) -> None:
        self._directory = directory
        self._model = Model.from_directory(directory)
        self._text = document_tokens(directory, tokens_max + QUESTION_TOKENS)
        self._store = StoreOptions(socket=str(socket), arena_bytes="1000MiB")

    def save(self, history_tokens: int) -> None:
        """Takes the first turn: the history is durable afterwards."""
        self._turn(self._text[:history_tokens], self._store)

    def second_turn(self, history_tokens: int, *, with_store: bool) -> TurnReport:
        """Takes the turn behind the history; it saves nothing, so that all are equal."""
        store = replace(self._store, saves=False) if with_store else None
        return self._turn(self._text[: history_tokens + QUESTION_TOKENS], store)

    def _turn(self, prompt: list[int], store: StoreOptions | None) -> TurnReport:
        return take_turn(
            self._model,
            self._directory,
            prompt,
            new_tokens_max=NEW_TOKENS,
            sampling=Sampling(),
            store=store,
        )


def group_of(conversation: Conversation, history_tokens: int) -> Group:
    """Restored and recomputed, side by side."""
    generated: dict[bool, tuple[int, ...]] = {}

    def taken(with_store: bool) -> Callable[[], Measured]:
        def run() -> Measured:
            report = conversation.second_turn(history_tokens, with_store=with_store)
            completion = report.completion
            generated[with_store] = completion.generated_ids
            if not with_store:
                return {f"recomputed_{history_tokens}": completion.ttft_s}
            restore = completion.restore
            equal = generated.get(False, completion.generated_ids) == completion.generated_ids
            return {
                f"restored_{history_tokens}": completion.ttft_s,
                f"share_{history_tokens}": restore.restored_tokens / history_tokens,
                f"device_mb_{history_tokens}": restore.device_bytes / 1e6,
                f"dram_mb_{history_tokens}": restore.dram_bytes / 1e6,
                f"equal_{history_tokens}": float(equal),
            }

        return run

    return Alternative(run=taken(False)), Alternative(run=taken(True))


def series(samples: dict[str, tuple[float, ...]], scale: Scale) -> tuple[Series, ...]:
    """The figures at the longest history, and a line for everything at every length."""
    longest = max(scale.history_tokens)
    found = [
        Series(
            key="tokens_equal",
            unit="1 or 0",
            samples=tuple(
                sample for length in scale.history_tokens for sample in samples[f"equal_{length}"]
            ),
            summary=Summary.LEAST,
            is_figure=True,
        ),
        Series(
            key="ttft_recompute_over_restored",
            unit="ratio",
            samples=ratios(samples[f"recomputed_{longest}"], samples[f"restored_{longest}"]),
            is_figure=True,
        ),
        Series(
            key="restored_share",
            unit="ratio",
            samples=samples[f"share_{longest}"],
            is_figure=True,
        ),
    ]
    for length in scale.history_tokens:
        restored, recomputed = samples[f"restored_{length}"], samples[f"recomputed_{length}"]
        found += [
            Series(key=f"ttft_restored_{length}_s", unit="s", samples=restored),
            Series(key=f"ttft_recomputed_{length}_s", unit="s", samples=recomputed),
            Series(key=f"ttft_ratio_{length}", unit="ratio", samples=ratios(recomputed, restored)),
            Series(key=f"device_{length}_mb", unit="MB", samples=samples[f"device_mb_{length}"]),
            Series(key=f"dram_{length}_mb", unit="MB", samples=samples[f"dram_mb_{length}"]),
        ]
    return tuple(found)


def measure(settings: Settings, scale: Scale) -> tuple[Series, ...]:
    """Saves every history, then takes the second turns in rounds."""
    with ExitStack() as stack:
        folder = stack.enter_context(scratch_folder(settings.folder, 2 * DEVICE_BYTES + GIB))
        status = stack.enter_context(settings.console.status("writing the model"))
        directory = random_model(folder, kv_heads=8)
        daemon = DaemonOptions(
            folder=folder,
            device_bytes=DEVICE_BYTES,
            dram_bytes=DRAM_BYTES,
            arena_bytes_max=ARENA_BYTES,
        )
        stack.enter_context(DaemonProcess(daemon))
        longest = max(scale.history_tokens)
        conversation = Conversation(directory, daemon.socket, tokens_max=longest)
        # Every length is a prefix of the longest.
        status.update("saving the histories")
        conversation.save(longest)
        samples = interleave(
            [group_of(conversation, length) for length in scale.history_tokens],
            rounds=scale.rounds,
            generator=settings.random(),
            announce=lambda text: status.update(f"second turns: {text}"),
        )
        return series(samples, scale)


def run(settings: Settings) -> tuple[Series, ...]:
    """Runs the benchmark at the scale that the settings ask for."""
    return measure(settings, QUICK if settings.quick else FULL)


BENCHMARK = Benchmark(
    name="conversation",
    figures=("tokens_equal", "ttft_recompute_over_restored", "restored_share"),
    run=run,
)
