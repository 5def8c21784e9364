import pytest

from engine_adapters.vllm.messages.refusal import LOGGER, WorkerRefusals, sentence_of, teller_of
from engine_adapters.vllm.settings.options import AdapterOptions
from kvstored_client import Reason
from kvstored_client.testing import MemoryClient, MemoryStore

TOO_LARGE = (
    "an arena of 8 bytes is larger than server.arena_bytes_max (4); ask for less or raise it"
)


def listen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Fills with what is logged."""
    told: list[str] = []
    monkeypatch.setattr(LOGGER, "warning", lambda text, *values: told.append(text % values))
    return told


@pytest.mark.parametrize(
    ("reason", "ending"),
    [
        (Reason.LIMIT_EXCEEDED, "the daemon's words (the engine's option is arena_bytes)"),
        (Reason.ACCESS_REFUSED, "the daemon's words (or name another daemon in socket)"),
        (Reason.DRAINING, "the daemon's words"),
    ],
)
def test_sentence_names_the_option_to_change(reason: Reason, ending: str) -> None:
    sentence = sentence_of(
        "the daemon's words", reason, part="this worker", arena="arena_bytes", socket="socket"
    )
    assert sentence.startswith("kvstored is off in this worker until the daemon grants it")
    assert sentence.endswith(ending)


def test_worker_retries_every_second_and_never_logs_the_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Bug: the log only ever named an absent daemon."""
    told = listen(monkeypatch)
    store = MemoryStore()
    store.faults.session_refusal = TOO_LARGE
    teller = teller_of("the worker of rank 3", AdapterOptions(arena_bytes="8GiB"))
    with MemoryClient(store, on_refusal=teller) as client:
        for _ in range(3):
            assert not client.available()
            assert client.allocate(1) is None
    (sentence,) = told
    assert sentence == (
        "kvstored is off in the worker of rank 3 until the daemon grants it a session: "
        f"{TOO_LARGE} (the engine's option is arena_bytes of kv_connector_extra_config, "
        "8GiB for each worker)"
    )
    assert caplog.text == ""


def test_each_sentence_of_the_daemon_is_told_once_whichever_workers_it_refuses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = listen(monkeypatch)
    refusals = WorkerRefusals()
    assert not refusals.are_any
    refusals.hear({0: TOO_LARGE, 1: TOO_LARGE})
    assert refusals.are_any
    refusals.hear({0: ""})
    assert refusals.are_any, "one worker without a session is enough to lose every load"
    refusals.hear({1: ""})
    assert not refusals.are_any
    refusals.hear({1: TOO_LARGE})
    assert refusals.are_any
    (sentence,) = told
    assert sentence == (
        "kvstored looks nothing up until the daemon grants the worker of rank 0 a session: "
        f"{TOO_LARGE}"
    )
