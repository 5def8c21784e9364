"""Settings of one figure of the paper, and what the paper claims of each."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from benchmarks.restore.claim import Claim


class Compared(Protocol):
    """A simulated setting with claims that were fixed without looking at our costs."""

    @property
    def name(self) -> str:
        """For the first column of a table."""
        ...

    @property
    def claims(self) -> tuple[Claim, ...]:
        """What the paper says of it."""
        ...

    @property
    def why(self) -> str:
        """Explains a miss."""
        ...

    def speedup(self, claim: Claim) -> float:
        """Ours, for what the claim compares."""
        ...


SettingT_co = TypeVar("SettingT_co", bound=Compared, covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment(Generic[SettingT_co]):
    """Settings of one figure.

    ``key`` begins the keys of its series; ``note`` says what the text leaves open.
    """

    key: str
    title: str
    note: str
    settings: tuple[SettingT_co, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A counted claim of one setting, and our speed-up."""

    experiment_key: str
    title: str
    setting_name: str
    claim: Claim
    speedup: float

    @property
    def difference(self) -> float:
        """As of the claim: 0 within its range."""
        return self.claim.difference(self.speedup)

    @property
    def key(self) -> str:
        """Of the series that it belongs to."""
        return f"{self.experiment_key}_{self.claim.mode}_vs_{self.claim.over}"


def judged(experiments: Iterable[Experiment[Compared]]) -> Iterator[Judged]:
    """Every claim that counts, in order."""
    for experiment in experiments:
        for setting in experiment.settings:
            for claim in setting.claims:
                if claim.is_counted:
                    yield Judged(
                        experiment_key=experiment.key,
                        title=experiment.title,
                        setting_name=setting.name,
                        claim=claim,
                        speedup=setting.speedup(claim),
                    )
