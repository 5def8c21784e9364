"""Bytes that nobody has written: they show where memory is used too early."""

import torch
from torch import Tensor

BYTE = 0xDB
_ITEM_BYTES = 8


def poison(memory: Tensor) -> None:
    """Fills a tensor of any strides and dtype with the byte."""
    if memory.dtype is torch.uint8:
        memory.fill_(BYTE)
    elif memory.dtype is torch.int64:
        memory.fill_(int.from_bytes(bytes([BYTE]) * _ITEM_BYTES, "little", signed=True))
    elif memory.is_contiguous():
        memory.view(torch.uint8).fill_(BYTE)
    else:
        block = torch.empty(memory.shape, dtype=memory.dtype)
        poison(block)
        memory.copy_(block)
