"""Stores a torch tensor through a running daemon and fetches it again.

python examples/store_tensor.py [SOCKET]
"""

import sys

import torch

from kvstored_client import Ack, Client, LayerState, NewChunk, Placement, StateKind, StateLayout

LAYERS, TOKENS, HEADS, HEAD_DIM = 4, 128, 2, 64
SLICE_SHAPE = (2, 64, HEADS, HEAD_DIM)  # keys and values of the 64 tokens of a chunk

layout = StateLayout(
    model="example-model@revision-1",
    dtype="bfloat16",
    layers=(LayerState(StateKind.KV, token_bytes=2 * HEADS * HEAD_DIM * 2),) * LAYERS,
)


def main() -> None:
    """Puts, reads back into other memory, compares."""
    token_ids = list(range(TOKENS))
    states = torch.randn(TOKENS // 64, LAYERS, *SLICE_SHAPE).to(torch.bfloat16)
    shape = tuple(states.shape)

    with Client(sys.argv[1] if len(sys.argv) > 1 else None, strict=True) as client:
        keys = client.prefix_keys(layout, token_ids)
        source = client.allocate(Placement.contiguous_bytes(layout, len(keys)))
        target = client.allocate(Placement.contiguous_bytes(layout, len(keys)))
        assert source is not None, "a strict client raises instead"
        assert target is not None
        client.delete(keys)  # an earlier run stored other numbers under these keys

        source.tensor(torch.bfloat16, shape).copy_(states)
        parents = [b"", *keys]  # each chunk continues the one before it
        chunks = [
            NewChunk(key=key, parent_key=parent, token_count=64)
            for key, parent in zip(keys, parents, strict=False)
        ]
        report = client.put(layout, chunks, Placement.contiguous(source, layout), ack=Ack.DURABLE)
        print(f"stored {report.stored_count} chunks durably in epoch {client.epoch}")

        found = client.match(layout, keys).chunk_count
        with client.read(layout, keys[:found], Placement.contiguous(target, layout)) as read:
            result = read.wait()
        fetched = target.tensor(torch.bfloat16, shape)
        print(f"fetched {result.resident_prefix} chunks, equal: {torch.equal(fetched, states)}")


if __name__ == "__main__":
    main()
