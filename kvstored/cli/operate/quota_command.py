"""``kvstored quota``: what a namespace may have; changes it while the daemon runs."""

import argparse

from kvstored.cli.connection import CALL_TIMEOUT_S
from kvstored.cli.errors import CommandError
from kvstored.cli.operate.operator_session import operator_session
from kvstored.cli.options import add_json_option
from kvstored.cli.output import Report, write_report
from kvstored.cli.quotas_command import OTHERS, report_of
from kvstored.cli.sizes import parsed_bytes
from kvstored_protos.v1 import admin_pb2

NONE = "none"
BYTES_MAX = 2**63 - 1
_QUOTAS = {
    "dram_guaranteed": "DRAM that nobody else takes from it",
    "dram_limit": "DRAM that it may have at most",
    "device_guaranteed": "bytes on the devices that nobody else takes from it",
    "device_limit": "bytes on the devices that it may have at most",
}


def add_options(verb: argparse.ArgumentParser) -> None:
    """Adds what only this verb takes to its command line."""
    verb.add_argument("namespace", help="a namespace with a quota in the configuration")
    for name, text in _QUOTAS.items():
        verb.add_argument(
            f"--{name.replace('_', '-')}", metavar="SIZE", help=f"{text}, such as 4GiB, or {NONE}"
        )
    add_json_option(verb)


def run(options: argparse.Namespace) -> int:
    """Sets what is given, then shows the namespace's row of `kvstored quotas`."""
    sizes = {
        f"{name}_bytes": wanted_bytes(name, text)
        for name in _QUOTAS
        if (text := getattr(options, name)) is not None
    }
    with operator_session(options) as session:
        if sizes:
            session.operate.SetQuota(
                admin_pb2.SetQuotaRequest(namespace=options.namespace, **sizes),
                metadata=session.metadata,
                timeout=CALL_TIMEOUT_S,
            )
        report = report_of(session.stats(), as_json=options.json)
    rows = [row for row in report.rows if row[0] == options.namespace]
    if not rows:
        known = ", ".join(str(row[0]) for row in report.rows if row[0] != OTHERS) or NONE
        raise CommandError(
            f"the namespace {options.namespace!r} has no quota of its own (those that have: "
            f"{known}); add it to [[quotas.namespaces]] and restart the daemon"
        )
    title = f"quota of {options.namespace}"
    if sizes:
        title += ", until the daemon reloads or starts; write it into the configuration to keep it"
    write_report(Report(title=title, columns=report.columns, rows=rows), as_json=options.json)
    return 0


def wanted_bytes(name: str, text: str) -> int:
    """A size, 0 for none; raises CommandError.

    A limit of 0 is refused: it would be taken for none.
    """
    if text == NONE:
        return 0
    option = f"--{name.replace('_', '-')}"
    wanted = parsed_bytes(option, text, wanted=f"a size such as 4GiB, or {NONE}")
    if wanted > BYTES_MAX:
        raise CommandError(
            f"{option} is {text!r}, more than any tier has; write {NONE} for no limit"
        )
    if wanted == 0 and name.endswith("_limit"):
        raise CommandError(
            f"{option} is {text!r}; write {NONE} for no limit, or the size of one chunk or more"
        )
    return wanted
