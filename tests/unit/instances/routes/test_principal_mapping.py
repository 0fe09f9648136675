"""Names of users by certificate, compared with Apache Kafka 3.9.1 (KIP-371), and the cost of a tenant's rules."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from instances.routes.kinds import MAPPING_RULES_CHARS_MAX
from instances.routes.principal_mapping import (
    DISTINGUISHED_NAME_CHARS_MAX,
    RULES_MAX,
    NoName,
    PrincipalMapping,
    RulesRefused,
)
from instances.routes.x509 import distinguished_name

GOLDEN = Path(__file__).parents[3] / "golden" / "ssl_principals.json"
RECORDED: dict[str, Any] = json.loads(GOLDEN.read_text())


@pytest.mark.parametrize("case", RECORDED["mapped"], ids=lambda case: case["rules"][:40])
def test_rules_name_users_as_kafkas_do(case: dict[str, Any]) -> None:
    mapping = PrincipalMapping(case["rules"])
    for name, expected in zip(RECORDED["names"], case["users"], strict=True):
        if expected is None:
            with pytest.raises(NoName):
                mapping.user_of(name)
        else:
            assert mapping.user_of(name) == expected


@pytest.mark.parametrize("rules", RECORDED["refused"])
def test_rules_that_kafka_refuses_are_refused(rules: str) -> None:
    with pytest.raises(RulesRefused):
        PrincipalMapping(rules)


@pytest.mark.parametrize("case", RECORDED["subjects"], ids=lambda case: case["name"][:40])
def test_a_subject_is_written_as_java_writes_it(case: dict[str, str]) -> None:
    assert distinguished_name(bytes.fromhex(case["der"])) == case["name"]


def test_a_subject_of_openssls_is_read_as_well() -> None:
    name = x509.Name([x509.NameAttribute(NameOID.COUNTRY_NAME, "CN"), x509.NameAttribute(NameOID.COMMON_NAME, "李雷")])
    assert distinguished_name(name.public_bytes()) == "CN=李雷,C=CN"


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ("RULE:^CN=(.*?)$/$1/, RULE:(a/b/", "rule 2 ('RULE:(a/b/'): the pattern is not understood: missing )"),
        ("RULE:(a+)+$/x/Q", "rule 1 ('RULE:(a+)+$/x/Q'): 'Q' is not understood"),
        ("RULE:(?=a)a/x/", "look-around"),
        ("RULE:(a)\\1/x/", "back references"),
        ("RULE:a*+/x/", "possessive"),
        ("RULE:[a-z&&[^b]]/x/", "inside brackets"),
        ("RULE:[[a]]/x/", "inside brackets"),
        ("RULE:(?U)a/x/", "the flag U"),
        ("RULE:a/$1/", "no group 1"),
        ("RULE:a/$/", "followed by no number"),
        ("RULE:a/${user}/", "no group 'user'"),
        ("anything", "'anything' is not understood"),
        ("", "there is no rule"),
        (" , ", "there is no rule"),
        ("DEFAULT,\nDEFAULT", "in one line"),
        (", ".join(["DEFAULT"] * (RULES_MAX + 1)), f"more than {RULES_MAX} rules"),
        ("RULE:a/" + "b" * MAPPING_RULES_CHARS_MAX + "/", "characters"),
        ("RULE:(((a{100}){100}){100})/x/", "rule 1"),
        (", ".join(["RULE:(a{400}|b)/x/"] * 6), "too large together"),
    ],
)
def test_rules_that_cannot_be_used_say_what_is_wrong_where(rules: str, said: str) -> None:
    with pytest.raises(RulesRefused) as refused:
        PrincipalMapping(rules)
    assert said in str(refused.value)


def test_a_name_is_made_by_the_first_rule_that_matches_it_as_a_whole() -> None:
    mapping = PrincipalMapping("RULE:^CN=(\\w+)$/first-$1/U, RULE:^CN=(.*?),.*$/$1/L, DEFAULT")
    assert mapping.user_of("CN=a") == "FIRST-A"
    assert mapping.user_of("CN=A,O=b") == "a"
    assert mapping.user_of("O=b") == "O=b"


def test_names_that_are_too_long_name_nobody() -> None:
    longest = "CN=" + "a" * (DISTINGUISHED_NAME_CHARS_MAX - 3)
    assert PrincipalMapping().user_of(longest) == longest
    with pytest.raises(NoName, match="characters"):
        PrincipalMapping().user_of(longest + "a")
    with pytest.raises(NoName, match="too long"):
        PrincipalMapping("RULE:^(.*)$/$1$1/").user_of(longest)
    with pytest.raises(NoName, match="times"):
        PrincipalMapping("RULE:a|(a|b)*/x/").user_of("aaaaaaaaab")


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+$", "(a|a)*b|.*", "(.*a){12}|.*", "^((a{0,200}){0,4})$|.*", "(?:a?){150}a{150}|.*", "(x+x+)+y|.*"],
)
def test_a_pattern_that_would_run_for_years_elsewhere_takes_milliseconds(pattern: str) -> None:
    name = "CN=" + "a" * (DISTINGUISHED_NAME_CHARS_MAX - 3)
    mapping = PrincipalMapping(f"RULE:{pattern}/x/, DEFAULT")
    began_s = time.thread_time()
    with contextlib.suppress(NoName):
        mapping.user_of(name)
    assert time.thread_time() - began_s < 0.2
