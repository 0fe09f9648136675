"""Sign-in and trust in the snippets of every language. `tests/product/system/test_snippets.py` runs them."""

from __future__ import annotations

import json
import re
import shlex
from types import SimpleNamespace

import pytest

from instances.routes.kinds import SECURITIES
from instances.views.snippet_security import (
    NO_SECURITY,
    SNIPPET_WRITERS,
    ClientSecurity,
    Login,
    Tls,
    client_security,
    properties,
)
from instances.views.snippets import TEMPLATES, snippets

CA_URL = "https://console.example/api/v1/ca.pem"
ETL = Login("etl", "pw")
HOSTILE = Login('o"neil\\ <topic>', "p'w")
PLACE = SimpleNamespace(bootstrap_servers="kafka.example:19092,kafka.example:19093")


def shown(security: ClientSecurity) -> dict[str, str]:
    return {snippet.choice: snippet.code for snippet in snippets(PLACE, "orders", security)}


def test_every_snippet_knows_how_to_come_in() -> None:
    assert {choice for choice, *_ in TEMPLATES} == SNIPPET_WRITERS.keys()


@pytest.mark.parametrize("choice", SNIPPET_WRITERS)
def test_a_hostile_name_stays_inside_its_quotes(choice: str) -> None:
    said = ClientSecurity(HOSTILE).lines(choice).settings
    if choice in ("kcat", "shell"):
        words = shlex.split(said.replace("\\\n", " "))
        expected = f"sasl.username={HOSTILE.username}" if choice == "kcat" else f"sasl.jaas.config={HOSTILE.jaas}"
        assert expected in words
    elif choice != "java":
        assert json.dumps(HOSTILE.username) in said
    else:
        assert json.dumps(HOSTILE.jaas) in said


def test_an_open_route_asks_for_nothing_more() -> None:
    for code in shown(NO_SECURITY).values():
        for word in ("sasl", "security", "ssl", "tls", "<servers", "<security", "<imports", "<before"):
            assert word not in code.lower(), word


@pytest.mark.parametrize("choice", SNIPPET_WRITERS)
def test_every_client_of_an_encrypted_route_names_the_file_of_the_authority(choice: str) -> None:
    for security in ("tls", "sasl_tls", "mtls"):
        known = client_security(SimpleNamespace(security=security), ETL, CA_URL)
        assert "penstock-ca.pem" in shown(known)[choice], security
        assert known.ca_command == f"curl -fsS {CA_URL} -o penstock-ca.pem"


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ("python", ('"ssl.ca.location": "penstock-ca.pem"', '"security.protocol": "SASL_SSL"')),
        ("kcat", ("-X ssl.ca.location=penstock-ca.pem",)),
        ("java", ('"ssl.truststore.type", "PEM"', '"ssl.truststore.location", "penstock-ca.pem"')),
        ("shell", ("ssl.truststore.type=PEM",)),
        ("csharp", ('SslCaLocation = "penstock-ca.pem"', "SecurityProtocol.SaslSsl")),
        ("node", ('ssl: { ca: require("fs").readFileSync("penstock-ca.pem") }',)),
        ("go", ("RootCAs: trusted", '"crypto/x509"')),
    ],
)
def test_each_client_says_it_in_its_own_words(choice: str, names: tuple[str, ...]) -> None:
    code = shown(ClientSecurity(ETL, Tls(CA_URL)))[choice]
    for name in names:
        assert name in code


def test_users_are_said_where_the_route_asks_for_them_alone() -> None:
    by_security = {kind: client_security(SimpleNamespace(security=kind), ETL, CA_URL) for kind in SECURITIES}
    assert {kind: found.protocol for kind, found in by_security.items()} == {
        "plaintext": "PLAINTEXT", "sasl_plaintext": "SASL_PLAINTEXT", "tls": "SSL", "sasl_tls": "SASL_SSL",
        "mtls": "SSL",
    }  # fmt: skip
    assert [kind for kind, found in by_security.items() if found.login] == ["sasl_plaintext", "sasl_tls"]
    assert [kind for kind, found in by_security.items() if found.has_client_certificate] == ["mtls"]
    assert client_security(None, ETL, CA_URL) == NO_SECURITY


@pytest.mark.parametrize("choice", SNIPPET_WRITERS)
def test_a_certificate_of_the_clients_own_is_named(choice: str) -> None:
    code = shown(ClientSecurity(None, Tls(CA_URL, has_client_certificate=True)))[choice]
    assert ("client-with-key.pem" if choice in ("java", "shell") else "client.key") in code


def test_brokers_with_a_certificate_of_the_tenants_own_need_no_file_of_ours() -> None:
    route = SimpleNamespace(security="tls", certificate={"subject": "CN=kafka.example"})
    security = client_security(route, ETL, CA_URL)
    assert (security.protocol, security.ca_command) == ("SSL", "")
    assert "ssl: true" in shown(security)["node"]
    for code in shown(security).values():
        assert "penstock-ca.pem" not in code


def test_the_file_of_settings_says_the_same() -> None:
    assert properties(ClientSecurity(ETL, Tls(CA_URL))).splitlines() == [
        "security.protocol=SASL_SSL",
        "ssl.truststore.type=PEM",
        "ssl.truststore.location=penstock-ca.pem",
        "sasl.mechanism=SCRAM-SHA-512",
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="etl" password="pw";',
    ]


def test_the_file_of_settings_is_read_by_java_as_it_is_meant() -> None:
    login = Login('o"neil\\ 李😀', "pw")
    (line,) = [line for line in properties(ClientSecurity(login)).splitlines() if line.startswith("sasl.jaas")]
    assert line.isascii()
    unescaped = re.sub(r"\\u([0-9a-f]{4})|\\(.)", lambda found: chr(int(found[1], 16)) if found[1] else found[2], line)
    read = unescaped.encode("utf-16", "surrogatepass").decode("utf-16")
    assert read == f"sasl.jaas.config={login.jaas}"


def test_a_password_is_not_shown_with_its_owner() -> None:
    assert "pw" not in repr(Login("etl", "pw"))
