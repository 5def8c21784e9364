"""The worker class of mode ``hcache``, named by ``--worker-cls``. Imports vLLM."""

import logging
from typing import Any

from vllm.distributed.kv_transfer import get_kv_transfer_group, has_kv_transfer_group
from vllm.platforms import current_platform

from engine_adapters.vllm.blocks.decoder_layers import LayerShapeError, decoder_layers
from engine_adapters.vllm.blocks.layer_hooks import LayerHooks
from engine_adapters.vllm.blocks.staged_inputs import StagedInputs
from engine_adapters.vllm.settings.engine_config import may_save_inputs

IS_ON_CPU = current_platform.device_type == "cpu"
if IS_ON_CPU:
    from vllm.v1.worker.cpu_worker import CPUWorker as EngineWorker
else:
    from vllm.v1.worker.gpu_worker import Worker as EngineWorker

LOGGER = logging.getLogger("vllm.kvstored")
STAGES_INPUTS = not IS_ON_CPU
"""Whether forwards are captured: then a kernel of theirs puts layer inputs aside."""


class HiddenStatesWorker(EngineWorker):
    """vLLM's worker, which shows its model to the connector.

    It hooks the model's layers. On a GPU a hook is one more kernel of the forward, which CUDA
    graphs capture as any other; it puts the layer's input into memory that vLLM counts as the
    model's. Projecting happens between two forwards, outside of all graphs, on the engine's stream.
    """

    def __init__(self, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(vllm_config, *args, **kwargs)
        self._hooks = LayerHooks()
        self._layers: list[Any] = []
        """Those that are hooked."""
        given = vllm_config.additional_config
        self._is_told_apart = isinstance(given, dict)
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
            self._layers = decoder_layers(self.model_runner.get_model())
        except LayerShapeError:
            # The connector says so when it knows that it wants them.
            return
        self._hooks.attach(self._layers, device=self.device)
        if STAGES_INPUTS and may_save_inputs(self.vllm_config):
            # Before vLLM measures how much memory is left for its cache; some versions count what
            # the runner names as the model's.
            self.model_runner.model_memory_usage = self._stage() + getattr(
                self.model_runner, "model_memory_usage", 0
            )

    def initialize_from_config(self, kv_cache_config: Any) -> None:
        """Makes the KV cache; the connector exists from here on, and graphs are captured later."""
        super().initialize_from_config(kv_cache_config)
        if not has_kv_transfer_group():
            return
        connector = get_kv_transfer_group()
        if not hasattr(connector, "use_model"):
            return
        if not connector.use_model(self.model_runner.get_model(), self._hooks):
            self._hooks.staged = None

    def execute_model(self, *args: Any, **kwargs: Any) -> Any:
        """A step. Some begin with a forward for nobody, which no connector hears of."""
        self._hooks.before_forward()
        return super().execute_model(*args, **kwargs)

    def execute_dummy_batch(self, *args: Any, **kwargs: Any) -> Any:
        """A forward for nobody: another data-parallel rank waits for it."""
        self._hooks.before_forward()
        return super().execute_dummy_batch(*args, **kwargs)

    def _stage(self) -> int:
        """How many bytes of the device it took."""
        model, scheduler = self.vllm_config.model_config, self.vllm_config.scheduler_config
        shape = (len(self._layers), scheduler.max_num_batched_tokens, model.get_hidden_size())
        try:
            staged = StagedInputs(*shape, dtype=model.dtype, device=self.device)
        except RuntimeError as error:
            LOGGER.warning(
                "kvstored saves no hidden states: there is no room for the layer inputs of a step "
                "of %d tokens on %s; set a smaller max_num_batched_tokens (%s)",
                scheduler.max_num_batched_tokens,
                self.device,
                error,
            )
            return 0
        self._hooks.staged = staged
        return staged.byte_count
