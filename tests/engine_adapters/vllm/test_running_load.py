from engine_adapters.vllm.chunk_keys import KeyChain, RequestIdentity
from engine_adapters.vllm.lookup import Found
from engine_adapters.vllm.orders import LoadEnd
from engine_adapters.vllm.running_load import RunningLoad
from engine_adapters.vllm.tally import Tally

BLOCK_TOKENS, CHUNK_TOKENS = 16, 64


def running(
    found: Found | None = None, *, is_overtaken: bool = False, is_told: bool = True
) -> RunningLoad:
    return RunningLoad(
        request_id="a",
        found=found or Found(),
        worker_count=2,
        workers_left=2,
        is_overtaken=is_overtaken,
        is_told=is_told,
    )


def counted(
    end: LoadEnd, *, is_overtaken: bool = False, is_projected: bool = False
) -> dict[str, float]:
    tally = Tally()
    load = running(is_overtaken=is_overtaken)
    load.count(end, tally, block_tokens=BLOCK_TOKENS, is_projected=is_projected)
    return tally.take()


END = LoadEnd(load_id=1, loaded_blocks=8, device_bytes=300, dram_bytes=100, duration_s=0.5)


def test_a_worker_counts_its_share_of_the_tokens() -> None:
    assert counted(END) == {
        "load_seconds": 0.5,
        "load_bytes": 400,
        "hit_tokens_dram": 16,
        "hit_tokens_device": 48,
        "restored_tokens": 64,
    }


def test_what_is_jumped_over_is_counted_with_the_jump() -> None:
    assert "restored_tokens" not in counted(END, is_overtaken=True)


def test_projected_tokens_are_counted_where_layer_inputs_are_loaded() -> None:
    assert counted(END, is_projected=True)["projected_tokens"] == 64


def test_load_that_lost_something_has_failed() -> None:
    end = LoadEnd(load_id=1, loaded_blocks=0, lost_chunks=(0,))
    assert counted(end) == {"failed_loads": 1}


def found_chunks(count: int) -> Found:
    chain = KeyChain(
        namespace="n", fingerprint="m", identity=RequestIdentity(), chunk_tokens=CHUNK_TOKENS
    )
    chain.extend(range(count * CHUNK_TOKENS))
    return Found(chain=chain, chunk_count=count)


def test_chunk_that_several_workers_lost_is_told_once() -> None:
    """Bug: routers heard of each removal once for each rank."""
    found = found_chunks(3)
    assert found.chain is not None
    keys = found.chain.extend(())
    load = running(found)
    assert load.lost_keys(LoadEnd(load_id=1, loaded_blocks=0, lost_chunks=(1,))) == [keys[1]]
    assert load.lost_keys(LoadEnd(load_id=1, loaded_blocks=0, lost_chunks=(1, 2))) == [keys[2]]


def test_lost_chunks_that_were_never_told_are_not_told_either() -> None:
    """Bug: routers heard of chunks with a salt when they were lost."""
    load = running(found_chunks(3), is_told=False)
    assert load.lost_keys(LoadEnd(load_id=1, loaded_blocks=0, lost_chunks=(1,))) == []
