"""The worker class of mode ``hcache``, named by ``--worker-cls``. Imports vLLM."""

from typing import Any

from vllm.distributed.kv_transfer import get_kv_transfer_group, has_kv_transfer_group
from vllm.v1.worker.cpu_worker import CPUWorker


class HiddenStatesWorker(CPUWorker):
    """vLLM's CPU worker, which shows its model to the connector."""

    def initialize_from_config(self, kv_cache_config: Any) -> None:
        """Makes the KV cache; the connector exists from here on."""
        super().initialize_from_config(kv_cache_config)
        if has_kv_transfer_group():
            connector = get_kv_transfer_group()
            if hasattr(connector, "use_model"):
                connector.use_model(self.model_runner.get_model())
