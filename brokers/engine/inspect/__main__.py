"""Command line of the inspection: `python -m brokers.engine.inspect dump|verify|recover DIRECTORY`.

Exit code 0: no faults; 1: faults; 2: the directory could not be inspected.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from pathlib import Path
from typing import TextIO

from brokers.engine.inspect.directories import DirectoryInUse, NotALogDirectory, find, lock_root
from brokers.engine.inspect.dump import DumpSelection, rows
from brokers.engine.inspect.findings import Printer
from brokers.engine.inspect.recover import run as recover
from brokers.engine.inspect.verify import run as verify
from brokers.engine.storage.files import StorageFailed

NO_FAULTS, FAULTS_FOUND, NOT_INSPECTED = 0, 1, 2


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return number


def parser() -> argparse.ArgumentParser:
    """Makes the parser of the command line, which `manage.py log` uses as well."""
    top = argparse.ArgumentParser(prog="log", description="Look inside Kafka log directories.")
    commands = top.add_subparsers(dest="act", required=True)
    dump_command = commands.add_parser("dump", help="print the contents of a log, as text or as one JSON object a line")
    verify_command = commands.add_parser(
        "verify", help="check everything, write nothing; exit code 1 if there is a fault"
    )
    recover_command = commands.add_parser(
        "recover", help="do what a broker does after a crash; without --yes only print it"
    )
    for command in (dump_command, verify_command, recover_command):
        command.add_argument("directory", type=Path, help="a partition's directory, or a whole log directory")
        command.add_argument("--json", action="store_true", help="one JSON object a line")
    dump_command.add_argument("--records", action="store_true", help="the records of every batch as well")
    dump_command.add_argument("--indexes", action="store_true", help="every entry of the indexes as well")
    dump_command.add_argument("--from-offset", type=_count, default=0, help="skip batches that end before this offset")
    dump_command.add_argument("--limit", type=_count, help="maximum number of batches of each partition")
    verify_command.add_argument("--quick", action="store_true", help="check checksums and order only, not the records")
    verify_command.add_argument("--compacted", action="store_true", help="do not report gaps between offsets")
    recover_command.add_argument("--yes", action="store_true", help="write; without it nothing is changed")
    recover_command.add_argument(
        "--whole", action="store_true", help="check from the first segment, not the recovery point"
    )
    return top


def main(arguments: list[str], out: TextIO) -> int:
    """Runs one command and returns the exit code."""
    options = parser().parse_args(arguments)
    printer = Printer(out, as_json=options.json)
    try:
        logs = find(options.directory)
        if options.act == "dump":
            selection = DumpSelection(options.records, options.indexes, options.from_offset, options.limit)
            for row in rows(logs, selection):
                printer.row(row)
            return NO_FAULTS
        with lock_root(logs.root, write=options.act == "recover" and options.yes):
            if options.act == "verify":
                report = verify(logs, printer.row, deep=not options.quick, compacted=options.compacted)
                return FAULTS_FOUND if report.faults else NO_FAULTS
            changed = recover(logs, printer.row, write=options.yes, whole=options.whole)
            return FAULTS_FOUND if changed and not options.yes else NO_FAULTS
    except (DirectoryInUse, NotALogDirectory, StorageFailed, OSError) as reason:
        if isinstance(reason, BrokenPipeError):
            raise
        sys.stderr.write(f"{reason}\n")
        return NOT_INSPECTED


if __name__ == "__main__":
    try:
        code = main(sys.argv[1:], sys.stdout)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, perhaps `head`, has closed the pipe
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = NO_FAULTS
    sys.exit(code)
