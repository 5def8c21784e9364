"""Models of random weights, made on the device: no file could be read in time."""

import torch

from engine_adapters.runner.model.llama_weights import assemble_llama
from engine_adapters.runner.model.model_config import Family, ModelConfig
from engine_adapters.runner.model.model_weights import ModelWeights
from engine_adapters.runner.model.opt_weights import assemble_opt
from engine_adapters.runner.model.random_tensors import random_tensors
from engine_adapters.runner.model.tensor_pool import TensorPool


def random_weights(config: ModelConfig, device: torch.device, *, seed: int = 0) -> ModelWeights:
    """Weights in the dtype of ``config``."""
    generator = torch.Generator(device).manual_seed(seed)
    pool = TensorPool(
        random_tensors(
            config.family, config, config.vocab_size, generator, dtype=getattr(torch, config.dtype)
        )
    )
    if config.family is Family.LLAMA:
        return assemble_llama(pool, config)
    return assemble_opt(pool, config)
