"""docs/ISOLATION.md leaves nothing out that tenants are served, and names what exists."""

from __future__ import annotations

import ast
import re

import pytest

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fields import message_class
from config.environment import BASE_DIR
from tests.reference.isolation import ATTACKS, ROWS, SERVED, attacks_on
from tests.reference.isolation_fields import FIELDS, KINDS, kind_of, kinds_of, named_fields
from tests.reference.own_things import OWN


def test_every_api_that_tenants_are_served_has_rows() -> None:
    assert ROWS.keys() == SERVED.keys()


@pytest.mark.parametrize("api_key", SERVED, ids=lambda api_key: api_key.name.lower())
def test_each_version_is_in_one_row(api_key: ApiKey) -> None:
    low, high = SERVED[api_key]
    versions = [version for row in ROWS[api_key] for version in range(row.versions[0], row.versions[1] + 1)]
    assert versions == list(range(low, high + 1)), "a new version: what names has it, and what bounds it?"


@pytest.mark.parametrize("api_key", SERVED, ids=lambda api_key: api_key.name.lower())
def test_every_text_id_and_blob_of_a_request_has_a_stated_treatment(api_key: ApiKey) -> None:
    assert kinds_of(api_key, SERVED[api_key]).keys() <= KINDS.keys()


def test_no_field_is_described_that_is_in_no_message() -> None:
    used = set()
    for api_key, versions in SERVED.items():
        for direction in ("request", "response"):
            for field in named_fields(message_class(api_key, direction), versions):  # type: ignore[arg-type]
                kind_of(api_key, field)
                used |= {field.path[-1], (api_key, ".".join(field.path[-2:])), (api_key, field.path[-1])}
    assert FIELDS.keys() <= used


def test_the_attacks_exist_and_each_is_of_some_api() -> None:
    assert all((BASE_DIR / path).is_file() for path, _ in ATTACKS.values())
    assert all((BASE_DIR / path).is_file() for _, _, path in OWN)
    assert {word for api_key in SERVED for word in attacks_on(api_key)} == ATTACKS.keys()


def attacks_named() -> list[str]:
    """The last column of the table of attacks."""
    text = (BASE_DIR / "docs/explanation/SECURITY.md").read_text(encoding="utf-8").split("## The attacks")[1]
    return re.findall(r"`(tests/[^`]+)` \|$", text, re.MULTILINE)


@pytest.mark.parametrize("attack", attacks_named(), ids=lambda attack: attack.rpartition("::")[2] or attack)
def test_each_attack_that_the_security_page_names_is_a_test(attack: str) -> None:
    file, _, name = attack.partition("::")
    tree = ast.parse((BASE_DIR / file).read_text(encoding="utf-8"))
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert (name in functions) if name else any(each.startswith("test_") for each in functions)


def test_every_row_of_the_table_of_attacks_names_its_test() -> None:
    text = (BASE_DIR / "docs/explanation/SECURITY.md").read_text(encoding="utf-8").split("## The attacks")[1]
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| attack |")]
    assert len(rows) == len(attacks_named()) >= 10
