from engine_adapters.vllm.messages.orders import LoadEnd
from engine_adapters.vllm.messages.tally import Tally
from engine_adapters.vllm.scheduler_side.found import Found
from engine_adapters.vllm.scheduler_side.running_load import RunningLoad

BLOCK_TOKENS = 16


def counted(
    *ends: LoadEnd, is_overtaken: bool = False, is_projected: bool = False
) -> dict[str, float]:
    tally = Tally()
    load = RunningLoad(
        load_id=1,
        request_id="a",
        found=Found(),
        worker_count=2,
        workers_left=2,
        is_overtaken=is_overtaken,
    )
    for end in ends:
        load.count(end, tally, block_tokens=BLOCK_TOKENS, is_projected=is_projected)
    return tally.take()


END = LoadEnd(load_id=1, loaded_blocks=8, device_bytes=300, dram_bytes=100, duration_s=0.5)


def test_a_worker_counts_its_share_of_the_tokens() -> None:
    assert counted(END) == {
        "load_seconds": 0.25,
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


def test_load_that_failed_in_two_workers_is_one_that_failed() -> None:
    """Bug: more loads failed than there were."""
    lost = LoadEnd(load_id=1, loaded_blocks=0, lost_chunks=(0,))
    assert counted(lost, lost) == {"failed_loads": 1}


def test_a_load_of_two_workers_does_not_take_twice_as_long() -> None:
    """Bug: what each of them took was added up, beside one load."""
    assert counted(END, END)["load_seconds"] == END.duration_s
