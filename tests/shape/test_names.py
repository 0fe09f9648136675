"""Names are the field's words: none of the private ones that were retired comes back (docs/GLOSSARY.md)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import pytest

from config.environment import BASE_DIR
from tests.shape.test_tidy import name_of, python_files

ENGINE = ("brokers/engine/", "tests/unit/brokers/engine/", "tests/component/engine/")
PRODUCT = ("config/", "tenants/", "instances/", "brokers/", "quotas/", "billing/", "notifications/", "archives/")
REBALANCING = ("brokers/rebalancing/", "brokers/operations/")
COORDINATORS = ("brokers/engine/coordinators/", "tests/unit/brokers/engine/coordinators/")


class Retired(NamedTuple):
    """A retired word. `pattern` matches a whole name; `where` has prefixes of paths in which the word had the old
    meaning.
    """

    pattern: str
    instead: str
    where: tuple[str, ...] = ("",)


def part(words: str) -> str:
    """Names with one of the words as a part: `door`, `_a_door`, `DOOR_MAX`, `AdminDoor`."""
    titles = "|".join(word.capitalize() for word in words.split("|"))
    snake, upper = (rf"(?:.*_)?(?:{text})(?:_.*)?" for text in (words, words.upper()))
    return rf"(?:{snake}|{upper}|_?(?:[A-Z].*)?(?:{titles})(?:[A-Z].*)?)"


RETIRED = (
    Retired(part("picture|pictures"), "cluster metadata image"),
    Retired(part("settle|settles|settled|settling"), "complete, apply, resolve"),
    Retired(part("door|doors"), "AdminClient"),
    Retired(part("book|books"), "InstanceAccounting, GroupRegistry, TransactionRegistry"),
    Retired(part("told"), "declared, sent, message"),
    Retired(r"\w*[a-z]Look|look|_look", "reconcile_once, describe; Summary, State", PRODUCT),
    Retired(part("verdict|verdicts"), "error_codes, partition_errors"),
    Retired(part("homes|rehoming"), "instance placement, PlacementChange"),
    Retired("is_same_life|same_life|lives|_lives", "broker epoch, incarnation"),
    Retired(part("surroundings"), "FetcherContext, ShardHost, ElectionContext"),
    Retired(part("owing"), "DelayedProduce"),
    Retired(part("park|parks|parked|parking"), "DelayedFetch"),
    Retired(r"(?:Fetch|Produce|Replication|Leadership)Waits?", "DelayedOperation"),
    Retired("answer_aside|pack_aside", "in background"),
    Retired(part("pull|pulls|pulled|cold"), "prefetch, uncached", ENGINE),
    Retired(part("pulse|beat|beats|beaten|beating"), "StallDetector.check, heartbeats", ENGINE),
    Retired("Turns?|promise|OWING|STARVED", "PendingResponse, TOO_MANY_PENDING, NO_BUFFER", ENGINE),
    Retired(part("entitle|entitled|unnamed|exempt"), "transaction verification", ENGINE),
    Retired("guards?", "verification token", ("brokers/engine/storage/", "brokers/engine/partitions/", *COORDINATORS)),
    Retired("packs|packs_anew|packing", "recompression"),
    Retired("stamp", "metadata_version", ("brokers/engine/handlers/", "brokers/engine/network/")),
    Retired(part("relay|relays|behalf"), "coordinator forwarding, ForwardedIdentity", ENGINE),
    Retired(r"_odd_\w+|fetch_odd|odd_\w+", "resolve_*", ("brokers/engine/handlers/",)),
    Retired(r"hot_\w+", "fast_codec_*", ENGINE),
    Retired("_?Lines?", "partition result", ENGINE),
    Retired(
        "in_excess|own_writes|pieces", "duplicate limits, read-your-writes, chunked encoding", ("brokers/engine/",)
    ),
    Retired("groups_shown", "describe_groups"),
    Retired(part("underway"), "in-flight creations", ENGINE),
    Retired("ControllerTerm|should_stand", "controller epoch, run for election"),
    Retired(part("doubt|doubts|doubted"), "suspect", ("brokers/engine/", "brokers/monitoring/", "brokers/dataplane/")),
    Retired(part("trust"), "confirm leadership", ("brokers/engine/",)),
    Retired("KeptStarts|DurableStarts|KeptUsage", "durable log start offset, MmapCounters"),
    Retired(
        "take_in|take_transactional|append_followed|update_txn_state",
        "replay_batch, apply_control_batch, append_as_follower",
    ),
    Retired(
        "Engine|Gone|GONE|Entering|Received|HeldConnections",
        "BrokerServices, ClosedSession, ConnectionHandshake",
        ENGINE,
    ),
    Retired("IN_LINE|_look_for_farewell", "Busy.QUEUED, _detect_peer_close", ENGINE),
    Retired(part("tidying"), "startup_cleanup", ENGINE),
    Retired("Living", "live-offset filter"),
    Retired(part("draft|outcome|outcomes"), "ResultBuilder, CoordinatorResult", COORDINATORS),
    Retired(
        "move_plans|moving|abandoning|losing|loss_plans?|Held|Holder", "reassignments, abort, DataLoss", REBALANCING
    ),
    Retired("copy_pace", "replication throttle"),
    Retired(part("silences"), "unresponsive brokers"),
    Retired(part("birth|births"), "process identity"),
    Retired("want_more", "bump_generation"),
    Retired("usual|exposition", "step durations, Prometheus", ("instances/",)),
    Retired(
        "Beginning|Ending|Turn|Reading|Progress|Side|Earned|Debt|Owed|Printed|News|Sent|Named",
        "Fired, Resolved, EvaluationSummary, Sample, AlertStatus, CapacityUse, Revenue, Receivables, SendResult",
        ("billing/", "notifications/", "archives/"),
    ),
)

# File or folder and name: why the word stays there with another meaning.
EXCEPTIONS = {
    ("tests/product/browser/", "picture"): "a screenshot",
    ("tests/product/browser/", "PICTURES"): "screenshots",
    ("", "verdict"): "REST's answer to why a client is delayed; the judgement of a chaos run",
    ("quotas/explain.py", "Verdict"): "REST's answer to why a client is delayed",
    ("quotas/explain.py", "_verdict"): "REST's answer to why a client is delayed",
    ("", "homes"): "a key of REST and a column of the database",
    ("", "HOMES"): "a value of the database",
    ("benchmarks/", "SETTLING_S"): "how long a machine comes to rest before it is measured",
    ("tests/", "SETTLED_WITHIN_S"): "how long a machine comes to rest",
    ("billing/", "SETTLED"): "accountants call so an invoice of which nothing is open",
    ("billing/", "INVOICE_SETTLED"): "the webhook of such an invoice",
    ("notifications/", "INVOICE_SETTLED"): "the webhook of such an invoice",
    ("tests/simulation/", "SETTLE_MS_MAX"): "how long a simulated cluster comes to rest",
    ("tests/simulation/", "SETTLE_STEP_MS"): "how long a simulated cluster comes to rest",
    ("tests/simulation/", "_silences"): "connections that the simulator keeps silent",
    ("tests/unit/brokers/engine/replication/marker_world.py", "silences"): "peers that a test keeps silent",
    ("tests/", "_lives"): "a test asks whether a process lives",
    ("tests/", "lives"): "a test asks whether a process or a record lives",
    ("tests/chaos/", "verdicts"): "the judgement of a chaos run",
    ("tests/chaos/verdict.py", "Verdict"): "the judgement of a chaos run",
    ("tests/component/quotas/", "verdicts"): "REST's answer to why a client is delayed",
}

# What is still to be renamed, as file and name. Entries only ever leave this list.
LEFT: set[tuple[str, str]] = set()

HEADING = re.compile(r"\b(?:pictures?|settl(?:e|es|ed|ing)|doors?|books?|verdicts?|rehoming|parking|relays?)\b", re.I)


def identifiers(tree: ast.Module) -> Iterator[str]:
    """Names that a file gives or uses, without those of tests, which are sentences."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if not name.startswith("test_"):
                    yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name
            case ast.keyword(arg=str(name)) | ast.alias(asname=str(name)):
                yield name


def is_retired(path: str, name: str) -> Retired | None:
    return next(
        (word for word in RETIRED if path.startswith(word.where) and re.fullmatch(word.pattern, name)),
        None,
    )


def is_exception(path: str, name: str) -> bool:
    return any(path.startswith(where) and name == word for where, word in EXCEPTIONS)


@cache
def retired_names() -> frozenset[tuple[str, str]]:
    """Where a retired word stands, of files and of what is in them."""
    places: set[tuple[str, str]] = set()
    for file in python_files():
        path = name_of(file)
        words = set(identifiers(ast.parse(file.read_text(encoding="utf-8"))))
        if not file.stem.startswith("test_"):
            words.add(file.stem)
        places |= {(path, word) for word in words if is_retired(path, word) and not is_exception(path, word)}
    return frozenset(places)


def test_no_retired_name_comes_back() -> None:
    new = sorted(retired_names() - LEFT)
    words = [(path, name, word.instead) for path, name in new if (word := is_retired(path, name))]
    assert not words, "name, and the field's word for it"


def test_a_renamed_word_leaves_the_list() -> None:
    assert not LEFT - retired_names(), "renamed: take it off LEFT"


def test_headings_of_the_docs_have_no_retired_word() -> None:
    files = [file for file in (BASE_DIR / "docs").rglob("*.md") if "spec" not in file.parts]
    headings = [
        line for file in files for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("#")
    ]
    assert headings
    assert not [line for line in headings if HEADING.search(line)]


@pytest.mark.parametrize(
    ("path", "name", "is_it"),
    [
        ("brokers/dataplane/x.py", "AdminDoor", True),
        ("brokers/limits.py", "DOOR_TIMEOUT_S", True),
        ("brokers/engine/cluster/x.py", "on_picture", True),
        ("brokers/x.py", "outdoors", False),
        ("config/celery.py", "beat", False),
        ("brokers/engine/x.py", "heartbeat", False),
    ],
)
def test_a_retired_word_is_recognised_as_a_part_of_a_name(path: str, name: str, is_it: bool) -> None:
    assert bool(is_retired(path, name)) is is_it
