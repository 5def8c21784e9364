import pytest
import torch

from engine_adapters.runner.restore.staging import BUFFERS, staging_for

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


def test_a_cpu_uses_tensors_where_they_lie() -> None:
    staging = staging_for(torch.device("cpu"))
    host = torch.arange(6.0)
    with staging.brought(host) as brought:
        assert brought.data_ptr() == host.data_ptr()
    staging.finish()


@needs_cuda
def test_a_gpu_gets_copies_while_the_arena_is_used_again() -> None:
    """More tensors than buffers, of sizes that grow and shrink, each used late by slow work."""
    device = torch.device("cuda")
    staging = staging_for(device)
    host = torch.empty(1 << 20)
    slow = torch.randn(2048, 2048, device=device)
    sums, expected = [], []
    for number in range(4 * BUFFERS):
        part = host[: 1000 + (number % 3) * 300_000]
        part.fill_(float(number))
        with staging.brought(part) as brought:
            for _ in range(5):
                slow = slow @ slow / slow.norm()
            sums.append(brought.double().sum())
        part.fill_(-1.0)
        expected.append(float(number) * len(part))
    staging.finish()
    assert [float(each) for each in sums] == expected


@needs_cuda
def test_a_view_with_gaps_is_copied_whole() -> None:
    staging = staging_for(torch.device("cuda"))
    padded = torch.arange(40.0).view(4, 10)
    with staging.brought(padded[:, :7]) as brought:
        copied = brought.clone()
    staging.finish()
    assert torch.equal(copied.cpu(), padded[:, :7])
