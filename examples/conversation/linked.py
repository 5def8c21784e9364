"""One request of four documents in an order that was never seen before, linked from entries.

Each document is computed on its own and stored. The request names them in an order that nothing
was computed in, and asks for what two of them tell together. The model is the small Llama that
links are judged with: it reads facts such as "; turn container" between English text.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from statistics import median

import torch

from benchmarks.kit.daemon_process import DaemonProcess, check_available
from benchmarks.kit.scratch_model import torch_threads
from benchmarks.pic.facts.asked import DTYPE, trained_model
from engine_adapters.runner.engine.request import Completion
from engine_adapters.runner.link.link_runner import LinkRequest, LinkRunner
from engine_adapters.runner.link.linked_prompt import EntryName, PromptPart
from engine_adapters.runner.model.fingerprint import model_fingerprint
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.tokenizer import Tokenizer
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Client

ARENA_BYTES = 64 * 1024 * 1024
DOCUMENTS = (
    (
        "# The server writes a line to the log for each file that it could not read; service "
        "network. An administrator should look at the log once a day, because files that cannot "
        "be read are not copied either, and nobody else will notice that they are missing."
    ),
    (
        "# Every user has a directory of their own. What is in it can be read by nobody else, "
        "unless the user says so; turn container. When a user is removed, the directory stays "
        "where it is until the administrator removes it as well."
    ),
    (
        "# Names of hosts are looked up in a file first, and only then by asking other servers; "
        "container platform. If the file has several lines with the same name, the first one is "
        "used and the others are ignored without a warning."
    ),
    (
        "# A program that waits for a lock goes on as soon as the lock is free; chunk suffix. The "
        "order in which several programs wait is not kept. A program that ends gives back all of "
        "its locks, also when it was ended by a signal."
    ),
)
ORDER = (2, 0, 3, 1)
"""Of the documents in the request."""
QUESTION = ": turn"
EXPECTED = "platform"
METHODS = ("full", "naive", "attnlink-16")
RIGHT_METHODS = ("full", "attnlink-16")
"""Those that are to answer rightly; ``naive`` may not."""
TRIES = 5
"""Of each method, in turn; their median counts."""
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedAnswer:
    """The request by one method, seconds and tokens; ``is_whole``: nothing else was computed."""

    method: str
    answer: str
    ttft_s: float
    restored_tokens: int
    computed_tokens: int
    is_whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedRequest:
    """What was asked, the right answer, and those that were given."""

    documents: tuple[str, ...]
    question: str
    expected: str
    answers: tuple[LinkedAnswer, ...]


def ask_documents(process: DaemonProcess, report: Report) -> LinkedRequest:
    """The request by all methods; raises BenchmarkError where daemon or model are not there."""
    report("one request of four documents in a new order")
    client = Client(process.options.socket, arena_bytes=ARENA_BYTES, name="demo")
    # One thread: several would wait for each other longer than so small a model computes.
    with client, torch_threads(spare_cores=torch.get_num_threads()):
        check_available(client)
        return answer(client)


def answer(client: Client) -> LinkedRequest:
    """As ``ask_documents``; raises BenchmarkError without the trained model."""
    directory = trained_model()
    model = Model.from_directory(directory, dtype=DTYPE)
    tokenizer = Tokenizer.from_directory(directory)
    states = StateFormat.of_model(model, model_fingerprint(directory, model.config))
    runner = LinkRunner(model, client, states, cache_tokens=model.config.position_count)
    with closing(runner):
        entry_ids = runner.generate_context_cache([tokenizer.encode(text) for text in DOCUMENTS])
        parts: list[PromptPart] = [EntryName(entry_ids[number]) for number in ORDER]
        parts.append(tokenizer.encode(QUESTION, is_continuation=True))
        done: dict[str, list[Completion]] = {method: [] for method in METHODS}
        for _ in range(TRIES):
            for method in METHODS:
                request = LinkRequest(parts=parts, new_tokens_max=1, method=method)
                done[method].append(runner.link(request))
    return LinkedRequest(
        documents=tuple(DOCUMENTS[number] for number in ORDER),
        question=QUESTION,
        expected=EXPECTED,
        answers=tuple(_answer(method, tries, tokenizer) for method, tries in done.items()),
    )


def _answer(method: str, tries: Sequence[Completion], tokenizer: Tokenizer) -> LinkedAnswer:
    last = tries[-1]
    restored, computed = last.restore.restored_tokens, last.computed_tokens
    return LinkedAnswer(
        method=method,
        answer=tokenizer.decode(last.generated_ids).strip(),
        ttft_s=median(each.ttft_s for each in tries),
        restored_tokens=restored,
        computed_tokens=computed,
        is_whole=all(
            each.restore.restored_tokens + each.computed_tokens == each.prompt_tokens
            for each in tries
        ),
    )


def faults(request: LinkedRequest) -> list[str]:
    """What is wrong, one sentence each; empty when the request was linked as it should be."""
    found = [
        f"linking by {each.method} neither loaded nor computed some tokens"
        for each in request.answers
        if not each.is_whole
    ]
    found += [
        f"the four documents answer {each.answer!r} by {each.method}, not {request.expected!r}"
        for each in request.answers
        if each.method in RIGHT_METHODS and each.answer != request.expected
    ]
    return found
