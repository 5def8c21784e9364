"""The longest history, saved once for each division of its layers that any rate asks for.

Shorter histories are its beginnings: the keys of chunks tell only of what stands before them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.gpu.found import WAYS
from benchmarks.kit.saved_history import SavedHistory
from engine_adapters.restore import (
    CostProfile,
    LayerSchedule,
    Mode,
    Source,
    schedule_for,
    storing_schedule,
    with_faster_reads,
)
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Client

KV_SCHEDULE_OF = (Mode.KV, Mode.CAKE)
"""Cake loads keys and values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDivisions:
    """What is stored for each way at each rate; equal divisions are stored once. Pure."""

    layer_count: int
    by_rate: Mapping[str, Mapping[Mode, LayerSchedule]]

    @classmethod
    def planned(
        cls, profiles: Mapping[str, CostProfile], *, layer_count: int, token_count: int
    ) -> "StoredDivisions":
        """By what each rate would make of the longest history."""
        return cls(
            layer_count=layer_count,
            by_rate={
                rate: {
                    way: _stored(way, profile, layer_count, token_count)
                    for way in WAYS
                    if way is not Mode.RECOMPUTE
                }
                for rate, profile in profiles.items()
            },
        )

    @property
    def schedules(self) -> dict[str, LayerSchedule]:
        """Each division by its name, with those from one source that plain reads need."""
        all_of = [
            LayerSchedule.of((source, self.layer_count)) for source in (Source.KV, Source.HIDDEN)
        ]
        of_ways = [schedule for ways in self.by_rate.values() for schedule in ways.values()]
        return {
            str(schedule): schedule
            for schedule in (*all_of, *of_ways)
            if schedule.count(Source.COMPUTE) < self.layer_count
        }


def _stored(way: Mode, profile: CostProfile, layer_count: int, token_count: int) -> LayerSchedule:
    if way in KV_SCHEDULE_OF:
        return LayerSchedule.of((Source.KV, layer_count))
    costs = profile.costs(token_count)
    planned = schedule_for(way, costs, layer_count)
    return storing_schedule(planned, schedule_for(way, with_faster_reads(costs), layer_count))


class Histories:
    """Tokens and their states in the store. One thread only."""

    def __init__(self, model: Model, tokens: Sequence[int], divisions: StoredDivisions) -> None:
        self.tokens = tokens
        self._divisions = divisions
        self._saved = SavedHistory(model, tokens, divisions.schedules)

    @property
    def division_count(self) -> int:
        """How often the history is stored."""
        return len(self._divisions.schedules)

    def save(self, client: Client) -> None:
        """Computes the longest history once and stores all of it; raises BenchmarkError."""
        self._saved.save(client)

    def format(self, schedule: LayerSchedule) -> StateFormat:
        """How a division lies in the store."""
        return self._saved.format(str(schedule))

    def stored(self, way: Mode, rate: str) -> LayerSchedule | None:
        """What is stored for a way at a rate; None for nothing."""
        schedule = self._divisions.by_rate[rate].get(way)
        if schedule is None or str(schedule) not in self._divisions.schedules:
            return None
        return schedule

    def single(self, source: Source) -> LayerSchedule:
        """All layers from one source."""
        return LayerSchedule.of((source, self._divisions.layer_count))
