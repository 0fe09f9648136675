"""Names of the modules that are compiled, and the directory of the build of exactly these sources."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
# A checkout that is not writable keeps its builds elsewhere.
BUILDS: Final = Path(os.environ.get("PENSTOCK_NATIVE_DIR") or ROOT / ".native").absolute()
# Written last: a build without it was interrupted.
COMPLETE: Final = "complete"
# Packages that are type-checked with the compiled modules, because these import them.
PACKAGES: Final = ("brokers/contract", "brokers/engine", "quotas", "instances")
_IMPORT: Final = re.compile(
    rb"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)|import[ \t]+([^\n]*))", re.MULTILINE
)
_NAME: Final = re.compile(rb"[\w.]+")

# Modules through which a produce or a fetch passes, and those that process each record in the cleaner. These modules
# must not be patched at run time.
MODULES: Final = (
    "brokers.engine.capacity.room",
    "brokers.engine.deadlines",
    "brokers.engine.handlers.client",
    "brokers.engine.handlers.fetch.fetch",
    "brokers.engine.handlers.fetch.follower_fetch",
    "brokers.engine.handlers.fetch.reading",
    "brokers.engine.handlers.fetch.request",
    "brokers.engine.handlers.fetch.response",
    "brokers.engine.handlers.produce.append",
    "brokers.engine.handlers.produce.delayed_produce",
    "brokers.engine.handlers.produce.produce",
    "brokers.engine.handlers.produce.request",
    "brokers.engine.handlers.produce.response",
    "brokers.engine.handlers.session",
    "brokers.engine.network.backlog",
    "brokers.engine.network.buffers",
    "brokers.engine.network.connection",
    "brokers.engine.network.inbound_frames",
    "brokers.engine.network.pending_responses",
    "brokers.engine.network.receiving",
    "brokers.engine.network.sending",
    "brokers.engine.page_cache",
    "brokers.engine.partitions.delayed_operations",
    "brokers.engine.partitions.follower_session",
    "brokers.engine.partitions.following",
    "brokers.engine.partitions.high_watermark_push",
    "brokers.engine.partitions.leadership",
    "brokers.engine.partitions.partition",
    "brokers.engine.partitions.progress",
    "brokers.engine.partitions.results",
    "brokers.engine.partitions.transactions",
    "brokers.engine.partitions.verification",
    "brokers.engine.protocol.fast_codec_fetch",
    "brokers.engine.protocol.fast_codec_fetch_response",
    "brokers.engine.protocol.fast_codec_forgotten",
    "brokers.engine.protocol.fast_codec_produce",
    "brokers.engine.protocol.fast_codec_replica_fetch",
    "brokers.engine.protocol.headers",
    "brokers.engine.protocol.lengths",
    "brokers.engine.records.batch",
    "brokers.engine.records.numbering",
    "brokers.engine.records.validation",
    "brokers.engine.records.walk",
    "brokers.engine.replication.fetch_plan",
    "brokers.engine.replication.fetcher",
    "brokers.engine.replication.link",
    "brokers.engine.scheduling.fair_queue",
    "brokers.engine.scheduling.fair_turns",
    "brokers.engine.storage.as_follower",
    "brokers.engine.storage.compaction.fields",
    "brokers.engine.storage.compaction.filtering",
    "brokers.engine.storage.compaction.offset_map",
    "brokers.engine.storage.compaction.reading",
    "brokers.engine.storage.compaction.run",
    "brokers.engine.storage.compaction.transactions",
    "brokers.engine.storage.files",
    "brokers.engine.storage.indexes",
    "brokers.engine.storage.log",
    "brokers.engine.storage.open_transactions",
    "brokers.engine.storage.producer_state",
    "brokers.engine.storage.read_ahead",
    "brokers.engine.storage.segment",
    "brokers.engine.storage.transactions",
    "brokers.engine.storage.verifications",
    "brokers.engine.throttling.charging",
    "brokers.engine.throttling.pool",
    "brokers.engine.throttling.traffic",
    "brokers.engine.throttling.usage",
    "brokers.engine.wire.checksum",
    "brokers.engine.wire.varints",
    "quotas.pacing",
    "quotas.rates",
    "quotas.throttle",
)


def source_of(module: str) -> Path:
    """Returns the file of a module or a package."""
    folder = ROOT / module.replace(".", "/")
    file = folder.with_name(f"{folder.name}.py")
    return file if file.exists() else folder / "__init__.py"


def sources() -> dict[str, bytes]:
    """Returns the source texts by module: `MODULES`, and all modules of `PACKAGES` that they import, also indirectly.

    Compiled modules depend on all of them: the compiler inlines constants of imported modules, and relies on their
    types.
    """
    sources_by_module: dict[str, bytes] = {}
    pending = set(MODULES)
    while pending:
        module = pending.pop()
        sources_by_module[module] = source_of(module).read_bytes()
        pending |= {
            name
            for name in imported_names(sources_by_module[module]) - sources_by_module.keys()
            if _is_in_packages(name) and _exists(name)
        }
    return sources_by_module


def imported_names(source: bytes) -> set[str]:
    """Returns the names of imported modules, and of the names imported from them, which may be modules as well.

    A regular expression finds them: each start of a broker waits for it, and a parser would take over a second.
    """
    result: set[str] = set()
    for origin, members, plain in _IMPORT.findall(source):
        names = [name.decode() for name in _NAME.findall(members or plain)]
        result |= {origin.decode(), *(f"{origin.decode()}.{name}" for name in names)} if origin else set(names)
    return result


def _is_in_packages(name: str) -> bool:
    return f"{name.replace('.', '/')}/".startswith(tuple(f"{package}/" for package in PACKAGES))


@cache
def _exists(module: str) -> bool:
    return source_of(module).exists()


def digest() -> str:
    """Returns a digest of `sources`, of the build script, and of the interpreter's version."""
    result = hashlib.sha256(f"{sys.version} {EXTENSION_SUFFIXES[0]}".encode())
    result.update(Path(__file__).with_name("build.py").read_bytes())
    for module, source in sorted(sources().items()):
        result.update(module.encode() + b"\0" + source + b"\0")
    return result.hexdigest()[:16]


def build_directory() -> Path:
    return BUILDS / digest()
