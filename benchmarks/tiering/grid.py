"""The paper's settings, one replay each: figures 13 and 21 to 24, and other loads."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.tiering import paper
from benchmarks.tiering.constants import SERVICE_TURNS_PER_S, THINK_S
from benchmarks.tiering.contexts import Context, contexts
from benchmarks.tiering.conversations import Conversation, generate
from benchmarks.tiering.fetching import AS_ALWAYS, Fetching
from benchmarks.tiering.policies import PolicyName
from benchmarks.tiering.replay import Hits, Setting, replay
from benchmarks.tiering.serving import Event, Kind, Served, serve

LOADS = (0.5, 0.9, 1.1)
"""Arriving turns as a part of what the server can end."""
COMPARED = (PolicyName.LRU, PolicyName.LOOK_AHEAD, PolicyName.OURS, PolicyName.BELADY)
"""At other loads; the paper's own figures have every policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How many conversations; all capacities shrink with them."""

    sessions: int

    def bytes(self, byte_count: float) -> int:
        """A capacity of the paper at this scale."""
        return int(byte_count * self.sessions / paper.SESSIONS)


FULL = Scale(sessions=paper.SESSIONS)
QUICK = Scale(sessions=600)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One replay. ``figure`` is the paper's, or ``load`` with its number."""

    figure: str
    model: paper.Model
    setting: Setting
    label: str
    hits: Hits
    queue_mean: float


class Grid:
    """Conversations of one seed, and what became of them in every setting."""

    def __init__(self, scale: Scale, seed: int, announce: Callable[[str], None]) -> None:
        self._scale = scale
        self._seed = seed
        self._announce = announce
        self.conversations = generate(
            seed, count=scale.sessions, sessions_per_s=self._arrivals_per_s(None)
        )
        self._served: dict[float | None, tuple[Served, Sequence[Conversation]]] = {}

    def figure_21(self) -> list[Cell]:
        """13B, every policy, both sizes of the disks."""
        return [
            self._cell("21", paper.LLAMA_13B, policy, disk_bytes=disk_bytes)
            for disk_bytes in paper.FIGURE_21
            for policy in PolicyName
        ]

    def other_stores(self) -> list[Cell]:
        """13B at 10 TB in stores that are not quite the paper's."""
        disk_bytes = 10 * paper.TB
        return [
            # As kvstored's own tiers: what DRAM has takes room on the devices, too.
            self._cell(
                "21, inclusive",
                paper.LLAMA_13B,
                PolicyName.OURS,
                disk_bytes=disk_bytes - paper.DRAM_BYTES,
            ),
            *(
                # Inclusive as well, with its two policies: ours in DRAM, look-ahead on devices.
                self._cell(
                    "21, as the daemon",
                    paper.LLAMA_13B,
                    PolicyName.OURS,
                    disk_bytes=capacity_bytes - paper.DRAM_BYTES,
                    kept_policy=PolicyName.LOOK_AHEAD,
                )
                for capacity_bytes in paper.FIGURE_21
            ),
            self._cell(
                "21, disks twice as fast",
                paper.LLAMA_13B,
                PolicyName.OURS,
                disk_bytes=disk_bytes,
                disk_bytes_per_s=2 * paper.DISK_BYTES_PER_S,
            ),
            *(
                self._cell(
                    "21, room for tokens alone",
                    paper.LLAMA_13B,
                    policy,
                    disk_bytes=disk_bytes,
                    is_reserved=False,
                )
                for policy in (PolicyName.LRU, PolicyName.OURS)
            ),
        ]

    def figure_13(self) -> list[Cell]:
        """The other models at 128 GB and 10 TB."""
        return [
            self._cell("13", model, policy, disk_bytes=10 * paper.TB)
            for model in paper.MODELS[1:]
            for policy in PolicyName
        ]

    def figure_22(self) -> list[Cell]:
        """Positions that are coupled to the states: a cut makes these useless."""
        return [
            self._cell("22", model, policy, disk_bytes=10 * paper.TB, is_coupled=True)
            for model in paper.MODELS
            for policy in PolicyName
        ]

    def figure_23(self) -> list[Cell]:
        """13B with a time to live of an hour, by parts of what that hour needs at most."""
        model = paper.LLAMA_13B
        needed = self.sessions_in_an_hour() * model.window_tokens * model.token_bytes
        return [
            self._cell(
                f"23, {part:g} of {needed / paper.TB:.1f} TB",
                model,
                policy,
                # Of this scale already.
                disk_bytes=part * needed * paper.SESSIONS / self._scale.sessions - paper.DRAM_BYTES,
                ttl_s=paper.TTL_S,
            )
            for part in paper.FIGURE_23
            for policy in PolicyName
        ]

    def figure_24(self) -> list[Cell]:
        """No disks: HBM alone, and HBM with DRAM."""
        sizes = {"HBM": paper.HBM_BYTES, "HBM+DRAM": paper.HBM_BYTES + paper.DRAM_BYTES}
        return [
            self._cell(f"24, {name}", model, policy, disk_bytes=0, dram_bytes=dram_bytes)
            for name, dram_bytes in sizes.items()
            for model in paper.MODELS
            for policy in PolicyName
        ]

    def loads(self) -> list[Cell]:
        """13B where fewer turns arrive than the server can end, and somewhat more."""
        return [
            self._cell(f"load {load}", paper.LLAMA_13B, policy, disk_bytes=disk_bytes, load=load)
            for load in LOADS
            for disk_bytes in (0, *paper.FIGURE_21)
            for policy in COMPARED
        ]

    def fetches(self, name: str, fetching: Fetching, disk_bytes_per_s: float) -> Cell:
        """13B at 10 TB with another way to fetch."""
        return self._cell(
            f"fetches, {name}",
            paper.LLAMA_13B,
            PolicyName.OURS,
            disk_bytes=10 * paper.TB,
            disk_bytes_per_s=disk_bytes_per_s,
            fetching=fetching,
        )

    def turns(self, model: paper.Model) -> tuple[Sequence[Event], Sequence[Sequence[Context]]]:
        """All events, and the contexts of each conversation's turns."""
        served, conversations = self._serve(None)
        return served.events, self._contexts(conversations, model)

    def sessions_in_an_hour(self) -> int:
        """The most conversations that have a turn within one hour."""
        served, _ = self._serve(None)
        starts = [event for event in served.events if event.kind is Kind.START]
        hours = {int(event.time_s / paper.TTL_S) for event in starts}
        return max(
            len({e.conversation for e in starts if int(e.time_s / paper.TTL_S) == hour})
            for hour in hours
        )

    def _cell(
        self,
        figure: str,
        model: paper.Model,
        policy: PolicyName,
        *,
        disk_bytes: float,
        dram_bytes: int = paper.DRAM_BYTES,
        disk_bytes_per_s: float = paper.DISK_BYTES_PER_S,
        is_reserved: bool = True,
        is_coupled: bool = False,
        ttl_s: float | None = None,
        kept_policy: PolicyName | None = None,
        load: float | None = None,
        fetching: Fetching = AS_ALWAYS,
    ) -> Cell:
        self._announce(f"figure {figure}: {model.name}, {policy.value}")
        served, conversations = self._serve(load)
        setting = Setting(
            policy=policy,
            disk_bytes=self._scale.bytes(disk_bytes),
            dram_bytes=self._scale.bytes(dram_bytes),
            model=model,
            disk_bytes_per_s=disk_bytes_per_s,
            is_reserved=is_reserved,
            is_coupled=is_coupled,
            ttl_s=ttl_s,
            kept_policy=kept_policy,
            fetching=fetching,
        )
        hits = replay(served, self._contexts(conversations, model), setting)
        return Cell(
            figure=figure,
            model=model,
            setting=setting,
            label=capacity_label(disk_bytes, dram_bytes),
            hits=hits,
            queue_mean=served.queue_mean,
        )

    def _contexts(
        self, conversations: Sequence[Conversation], model: paper.Model
    ) -> list[list[Context]]:
        return [contexts(each.turns, model.window_tokens) for each in conversations]

    def _arrivals_per_s(self, load: float | None) -> float:
        if load is None:
            return paper.SESSIONS_PER_S
        return load * SERVICE_TURNS_PER_S / paper.MEAN_TURNS

    def _serve(self, load: float | None) -> tuple[Served, Sequence[Conversation]]:
        if load not in self._served:
            conversations = generate(
                self._seed,
                count=self._scale.sessions,
                sessions_per_s=self._arrivals_per_s(load),
            )
            served = serve(
                conversations,
                turns_per_s=SERVICE_TURNS_PER_S,
                think_s=THINK_S,
                seed=self._seed,
            )
            self._served[load] = (served, conversations)
        return self._served[load]


def capacity_label(disk_bytes: float, dram_bytes: int) -> str:
    """As the paper writes it: DRAM and disks."""
    disk = f"{disk_bytes / paper.TB:.3g}T" if disk_bytes else "0"
    return f"{dram_bytes // paper.GB}G/{disk}"
