"""The worker class of layer inputs, without an engine."""

from typing import Any

import pytest

pytest.importorskip("vllm", reason="needs vLLM: make test-vllm")

from engine_adapters.vllm.blocks.layer_hooks import LayerHooks
from engine_adapters.vllm.worker import HiddenStatesWorker

pytestmark = pytest.mark.vllm


@pytest.mark.parametrize("method", ["execute_model", "execute_dummy_batch"])
def test_forwards_that_no_connector_hears_of_overwrote_rows(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Bug: those of data-parallel ranks did not wait for the copy of the forward before."""
    happened: list[str] = []

    def run(worker: Any, *arguments: Any) -> str:
        del worker
        happened.append("forward")
        return f"answer to {arguments}"

    (engine_worker,) = HiddenStatesWorker.__bases__
    monkeypatch.setattr(engine_worker, method, run, raising=False)
    worker: Any = object.__new__(HiddenStatesWorker)
    worker._hooks = LayerHooks()
    worker._hooks.hold = lambda: happened.append("hold")
    assert getattr(worker, method)("plan") == "answer to ('plan',)"
    assert happened == ["hold", "forward"]
