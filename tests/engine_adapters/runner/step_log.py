"""A sink that remembers what was in each step."""

from collections.abc import Sequence

from engine_adapters.runner.model.step import NullSink, Segment


class StepLog(NullSink):
    """Which requests took part in which step, and which were announced when."""

    def __init__(self) -> None:
        self.steps: list[list[tuple[int, int]]] = []
        self.announced: dict[int, int] = {}

    def begin_request(self, request_id: int, token_ids: Sequence[int], stored_tokens: int) -> None:
        assert request_id not in self.announced
        self.announced[request_id] = stored_tokens

    def begin_step(self, segments: Sequence[Segment]) -> None:
        self.steps.append([(part.request_id, part.token_count) for part in segments])

    def steps_of(self, request_id: int) -> list[int]:
        return [n for n, parts in enumerate(self.steps) if request_id in dict(parts)]
