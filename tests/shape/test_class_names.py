"""A class name stands in one module of a program, and modules have a reason to be on their own.

Broker and control plane are two programs: no module of one imports classes of the other, except for `brokers.contract`.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Mapping
from functools import cache

from tests.shape.test_dotted_names import PROSE
from tests.shape.test_tidy import name_of, python_files

BROKER = "brokers/engine/"
CLASS = re.compile(r"^ *class ([A-Za-z]\w*)[(:\[]", re.MULTILINE)
LINES_MIN = 30
# Names with the reason why they stand in several modules. Entries only ever leave these lists.
HOMONYMS = {
    "Command": "Django finds a command by this name",
    "Meta": "Django's inner class",
    # The broker: a port on a lower floor, and its implementation.
    "RetainedFrame": "a port of handlers, implemented by the network",
    "Mute": "a port of the network, implemented by throttling",
    "QueuedWork": "a port of waits, implemented by the fair queue of the event loop",
    "Session": "a port of the network, implemented by the handlers",
    # The broker: a message of the wire, and the request that handlers make of it.
    "FetchRequest": "a message, and the request that is served",
    "ProduceRequest": "a message, and the request that is served",
    # REST: the serializer of a value, and the value. The serializer's name is published in the schema.
    "InstanceUsage": "the schema's name",
    "Problem": "the schema's name",
    "Quickstart": "the schema's name",
    "Storage": "the schema's name",
    "Throttles": "the schema's name",
    "Throughput": "the schema's name",
    "PlaceOut": "two serializers of one name in the schema's components",
    "TransactionAbort": "two serializers of one name in the schema's components",
    # A row of the database, and the value that pure code computes with.
    "Discount": "a row, and the terms of a bill",
    "TaxChange": "a row, and the terms of a bill",
}
# Modules that Django, a service manager or a compiler finds by their place or name.
FOUND_BY_PLACE = re.compile(
    r"(?:^|/)(?:__init__|__main__|admin|apps|celery|formats|models|tasks|urls|wsgi)\.py$"
    r"|/(?:management/commands|models|templatetags)/"
)
# Short modules with a single importer, with the reason why they stand alone.
SHORT_MODULES = {
    "archives/damage.py": "a pure decision, tested alone",
    "billing/admin_views/margins.py": "one page",
    "billing/views/coupons.py": "one page",
    "notifications/webhooks/pacing.py": "a pure decision, tested alone",
    "brokers/agent/defaults.py": "a pure decision, tested alone",
    "brokers/api/certificates.py": "one endpoint",
    "brokers/dataplane/user_messages.py": "the calls that kafka-python does not define",
    "brokers/monitoring/storage_sampling.py": "the work of one task",
    "brokers/monitoring/topic_clients.py": "implementation of one interface of instances",
    "config/embedded/niceness.py": "runs between fork and exec, and imports nothing",
    "config/translations.py": "the catalogs' build, also run alone",
    "config/web/published.py": "the limits that the web server publishes",
    "instances/lifecycle/growth.py": "a pure decision, tested alone",
    "instances/oauth/selectors.py": "reads of one model, as every app has them",
    "tenants/sign_in_events.py": "signal receivers, connected when the app is ready",
}


def homonyms(texts: Mapping[str, str]) -> dict[str, list[str]]:
    """Returns the public class names that several modules of one program define, with these modules."""
    places: dict[tuple[bool, str], set[str]] = defaultdict(set)
    for name, text in texts.items():
        for class_name in CLASS.findall(PROSE.sub("", text)):
            places[name.startswith(BROKER), class_name].add(name)
    result: dict[str, list[str]] = defaultdict(list)
    for (_, class_name), names in sorted(places.items()):
        if len(names) > 1:
            result[class_name] += sorted(names)
    return dict(result)


@cache
def product() -> dict[str, str]:
    return {
        name: file.read_text(encoding="utf-8")
        for file in python_files()
        if not (name := name_of(file)).startswith(("tests/", "benchmarks/"))
    }


def test_a_class_name_stands_in_one_module() -> None:
    several = homonyms(product())
    assert not {name: places for name, places in several.items() if name not in HOMONYMS}, (
        "give the second its own noun"
    )
    assert not sorted(HOMONYMS.keys() - several.keys()), "named apart: take it off HOMONYMS"


def test_homonyms_are_found_within_one_program() -> None:
    one = "class A:\n    class Inner: ...\n"
    assert homonyms({"tenants/a.py": one, "quotas/b.py": one}) == {
        "A": ["quotas/b.py", "tenants/a.py"],
        "Inner": ["quotas/b.py", "tenants/a.py"],
    }
    assert not homonyms({"tenants/a.py": one, "brokers/engine/b.py": one})
    assert not homonyms({"tenants/a.py": "class _A: ...", "quotas/b.py": "class _A: ..."})


def importers(texts: Mapping[str, str]) -> dict[str, set[str]]:
    """Returns the files that import each file, or a name of it."""
    files = {name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): name for name in texts}
    result: dict[str, set[str]] = defaultdict(set)
    for name, text in texts.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                imported = {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported = {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            else:
                continue
            for module in imported & files.keys():
                result[files[module]].add(name)
    return result


def short_modules(texts: Mapping[str, str]) -> set[str]:
    """Returns modules below `LINES_MIN` lines that a single other module imports."""
    by_file = importers(texts)
    return {
        name
        for name, text in texts.items()
        if text.count("\n") < LINES_MIN and len(by_file[name]) == 1 and not FOUND_BY_PLACE.search(name)
    }


def test_no_short_module_has_a_single_importer() -> None:
    short = short_modules(product())
    assert not sorted(short - SHORT_MODULES.keys()), "put it into the module that imports it"
    assert not sorted(SHORT_MODULES.keys() - short), "take it off SHORT_MODULES"


def test_short_modules_are_found() -> None:
    texts = {
        "quotas/a.py": "A = 1\n",
        "quotas/urls.py": "B = 1\n",
        "quotas/long.py": "\n" * LINES_MIN,
        "quotas/b.py": "from quotas import long, urls\nfrom quotas.a import A\n",
    }
    assert short_modules(texts) == {"quotas/a.py"}
    assert not short_modules(texts | {"quotas/c.py": "import quotas.a\n"})
