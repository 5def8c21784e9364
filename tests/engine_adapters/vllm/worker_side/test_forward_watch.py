from engine_adapters.vllm.worker_side.forward_watch import ForwardWatch


def test_a_forward_that_an_error_ends_has_failed() -> None:
    watch, seen = ForwardWatch(), []
    watch.begin()
    try:
        try:
            int("no number")
        finally:
            seen.append(watch.has_failed)
    except ValueError:
        watch.begin()
        seen.append(watch.has_failed)
    watch.begin()
    seen.append(watch.has_failed)
    assert seen == [True, False, False]
