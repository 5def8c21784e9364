"""One screen of ``kvstored top``: what there is, and what happens."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from kvstored.cli.operate.rates import Rates
from kvstored.cli.operate.times import time_text
from kvstored.cli.output import human_bytes
from kvstored.cli.quotas_command import OTHERS
from kvstored_protos.v1 import admin_pb2

BAR_WIDTH = 16
FULL_SHARE = 0.9
"""A limit that is reached to this part is shown in another colour."""


def screen_of(stats: admin_pb2.StatsReply, rates: Rates) -> RenderableType:
    """A daemon at one moment."""
    return Group(_head(stats), _tiers(stats, rates), _work(stats, rates), _namespaces(stats))


def _head(stats: admin_pb2.StatsReply) -> RenderableType:
    failed = [device.path for device in stats.devices if device.failed]
    text = Text.assemble(
        ("kvstored", "bold"),
        f"  epoch {stats.epoch}, up {time_text(stats.uptime_ms / 1000)}, "
        f"{stats.session_count} sessions, {stats.chunk_count} chunks, "
        f"{stats.sequence_count} sequences",
    )
    for path in failed:
        text.append(f"\n{path} has failed", style="bold red")
    if stats.index_failed:
        text.append("\nthe index has failed: nothing is stored until a restart", "bold red")
    return text


def _table(*columns: str, names: int = 1) -> Table:
    """The first ``names`` columns have text, all others figures."""
    table = Table(box=None, pad_edge=False, header_style="bold", title_justify="left")
    for index, column in enumerate(columns):
        justify = "left" if index < names else "right"
        table.add_column(column, justify=justify, overflow="ellipsis", no_wrap=True)  # type: ignore[arg-type]  # one of two literals
    return table


def _bar(used: float, capacity: float) -> RenderableType:
    return ProgressBar(total=max(capacity, 1), completed=used, width=BAR_WIDTH)


def _tiers(stats: admin_pb2.StatsReply, rates: Rates) -> RenderableType:
    table = _table("\ntier", "\nfill", "\nused", "\nof", "\nread/s", "\nwritten/s", names=2)
    table.add_row(
        "DRAM",
        _bar(stats.dram_used_bytes, stats.dram_capacity_bytes),
        human_bytes(stats.dram_used_bytes),
        human_bytes(stats.dram_capacity_bytes),
        "",
        "",
    )
    for one in rates.devices:
        table.add_row(
            Text(one.path, style="red" if one.is_failed else ""),
            _bar(one.used_bytes, one.capacity_bytes),
            human_bytes(one.used_bytes),
            human_bytes(one.capacity_bytes),
            human_bytes(round(one.read_bytes_per_s)),
            human_bytes(round(one.written_bytes_per_s)),
        )
    return table


def _work(stats: admin_pb2.StatsReply, rates: Rates) -> RenderableType:
    table = _table("\nwork", "\nnow")
    rows: Sequence[tuple[str, str]] = (
        ("reads/s", f"{rates.reads_per_s:.1f}"),
        ("chunks restored/s", f"{rates.restored_chunks_per_s:.1f}"),
        ("chunks stored/s", f"{rates.puts_per_s:.1f}"),
        ("hit rate", _share(rates.hit_share)),
        ("of it from DRAM", _share(rates.dram_share)),
        ("reads in flight", str(stats.reads_in_flight_count)),
        ("requests waiting", str(stats.waiting_request_count)),
        ("pinned chunks", str(stats.pinned_chunk_count)),
    )
    for row in rows:
        table.add_row(*row)
    return table


def _namespaces(stats: admin_pb2.StatsReply) -> RenderableType:
    table = _table("\nnamespace", "\nDRAM", "\nlimit", "\ndevices", "\nlimit")
    for one in stats.namespaces:
        table.add_row(
            Text(one.name or OTHERS),
            _used(one.dram_used_bytes, one.dram_limit_bytes),
            _limit(one.dram_limit_bytes),
            _used(one.device_used_bytes, one.device_limit_bytes),
            _limit(one.device_limit_bytes),
        )
    return table


def _used(used_bytes: int, limit_bytes: int) -> Text:
    is_full = limit_bytes and used_bytes >= FULL_SHARE * limit_bytes
    return Text(human_bytes(used_bytes), style="yellow" if is_full else "")


def _limit(limit_bytes: int) -> str:
    return human_bytes(limit_bytes) if limit_bytes else "-"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"
