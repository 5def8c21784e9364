"""The worker class of mode ``hcache``, named by ``--worker-cls``. Imports vLLM."""

import logging
from typing import Any

from vllm.distributed.kv_transfer import get_kv_transfer_group, has_kv_transfer_group
from vllm.platforms import current_platform

from engine_adapters.vllm.blocks.decoder_layers import LayerShapeError, decoder_layers
from engine_adapters.vllm.blocks.layer_hooks import LayerHooks

IS_ON_CPU = current_platform.device_type == "cpu"
if IS_ON_CPU:
    from vllm.v1.worker.cpu_worker import CPUWorker as EngineWorker
else:
    from vllm.v1.worker.gpu_worker import Worker as EngineWorker

LOGGER = logging.getLogger("vllm.kvstored")


class HiddenStatesWorker(EngineWorker):
    """vLLM's worker, which shows its model to the connector.

    On a GPU it hooks nothing, so that it breaks no capture of a CUDA graph: a captured graph runs
    no Python, and the connector stores keys and values there.
    """

    def __init__(self, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(vllm_config, *args, **kwargs)
        self._hooks = LayerHooks()
        given = vllm_config.additional_config
        self._is_told_apart = isinstance(given, dict) and IS_ON_CPU
        if not IS_ON_CPU:
            return
        if self._is_told_apart:
            # vLLM keeps compiled models under a digest of its configuration, and takes one that
            # was compiled without these hooks otherwise.
            vllm_config.additional_config = {**given, "kvstored_hooks": self._hooks.number}
        else:
            LOGGER.warning(
                "kvstored saves no hidden states: additional_config is no dictionary, so that "
                "compiled models with and without its hooks cannot be told apart"
            )

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Loads the model, and hooks its layers before it is compiled."""
        super().load_model(*args, **kwargs)
        if not self._is_told_apart:
            return
        try:
            self._hooks.attach(decoder_layers(self.model_runner.get_model()))
        except LayerShapeError:
            # The connector says so when it knows that it wants them.
            return

    def initialize_from_config(self, kv_cache_config: Any) -> None:
        """Makes the KV cache; the connector exists from here on."""
        super().initialize_from_config(kv_cache_config)
        if has_kv_transfer_group():
            connector = get_kv_transfer_group()
            if hasattr(connector, "use_model"):
                connector.use_model(self.model_runner.get_model(), self._hooks)
