"""From what the rounds measured to figures and series. Pure."""

from benchmarks.report import Series
from benchmarks.storage.rates import Rates, lowest, measured, ratio

PUT = "put_durable"
PEER_PUT = "lmcache_raw_put"
PEER_PUT_FINDABLE = "lmcache_raw_put_findable"
"""With the checkpoint, which ours has in its ack."""
PEER_READ = "lmcache_raw_read"
FIO_WRITE = "fio_1mib_16_write"
FIO_READ = "fio_1mib_16_read"
ORDERS = ("tail_first", "layer_first", "head_first")

FIGURES = (
    "put_durable_vs_lmcache_raw",
    "read_cold_vs_lmcache_raw",
    "put_durable_vs_fio_1mib_16",
    "read_cold_vs_fio_1mib_16",
    "lmcache_raw_put_vs_fio_1mib_16",
    "lmcache_raw_read_vs_fio_1mib_16",
)


def read_name(order: str) -> str:
    """The series of our cold reads in one order."""
    return f"read_cold_{order}"


def series(rates: Rates) -> tuple[Series, ...]:
    """Ratios of each round and the rates; the figure of reads is that of the slowest order."""
    found = [
        ratio("put_durable_vs_lmcache_raw", rates, PUT, PEER_PUT, is_figure=True),
        ratio("put_durable_vs_lmcache_raw_findable", rates, PUT, PEER_PUT_FINDABLE),
        ratio("put_durable_vs_fio_1mib_16", rates, PUT, FIO_WRITE, is_figure=True),
        ratio("lmcache_raw_put_vs_fio_1mib_16", rates, PEER_PUT, FIO_WRITE, is_figure=True),
        ratio("lmcache_raw_read_vs_fio_1mib_16", rates, PEER_READ, FIO_READ, is_figure=True),
    ]
    for label, peer in (("lmcache_raw", PEER_READ), ("fio_1mib_16", FIO_READ)):
        of_orders = [
            ratio(f"{read_name(order)}_vs_{label}", rates, read_name(order), peer)
            for order in ORDERS
        ]
        found += [lowest(f"read_cold_vs_{label}", of_orders, is_figure=True), *of_orders]
    names = [PUT, *map(read_name, ORDERS), PEER_PUT, PEER_PUT_FINDABLE, PEER_READ]
    return (*found, *measured(rates, [*names, FIO_WRITE, FIO_READ]))
