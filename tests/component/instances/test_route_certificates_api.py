"""Certificates of routes over REST: set, replaced, removed, shown, and refused."""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from django.db import connection
from django.utils import timezone

from brokers.infra.certificates import ensure_route_keys
from brokers.provisioning.steps import certificates_of
from instances import services
from instances.models import Instance, Operation, Route, RouteCertificates
from instances.routes.certificate_entries import (
    CLIENT_CA_BYTES_MAX,
    CLIENT_CA_CERTIFICATES_MAX,
    REVOCATION_LIST_BYTES_MAX,
    REVOKED_MAX,
)
from tenants.models import AuditEntry, Member
from tests.testkit.api_cases import Api, assert_problem
from tests.testkit.client_certificates import DAY, NOW, Authority, key_pem, name_of, pem_of, sign
from tests.testkit.fleet import make_running, make_secured_route

pytestmark = pytest.mark.django_db

ACME = Authority.make("Acme CA")


@pytest.fixture()
def instance(owner: Member, settings: Any, tmp_path: Path) -> Instance:
    settings.TLS_DIR = tmp_path
    ensure_route_keys(tmp_path)
    return make_running(owner.tenant, name="orders")


@pytest.fixture()
def place(instance: Instance) -> str:
    Route.objects.create(instance=instance, name="secure", security="mtls")
    return f"/instances/{instance.pk}/routes/secure"


def test_a_route_with_client_certificates_is_opened_by_its_owner(api: Api, instance: Instance) -> None:
    rules = "RULE:^CN=(.*?),.*$/$1/L, DEFAULT"
    wanted = {"name": "secure", "security": "mtls", "principal_mapping_rules": rules}
    answer = api.post(f"/instances/{instance.pk}/routes", wanted)
    assert answer.status_code == 202
    shown = answer.json()
    assert (shown["security_protocol"], shown["principal_mapping_rules"]) == ("SSL", rules)
    assert (shown["certificate"], shown["client_ca"], shown["revocation"]) == (None, None, None)
    assert AuditEntry.objects.get(action="route.created").after["principal_mapping_rules"] == rules
    assert api.post("/instances", {"name": "new", "routes": [wanted]}).status_code == 202


def test_authorities_and_revoked_certificates_are_set_shown_and_removed(
    api: Api, instance: Instance, place: str, tmp_path: Path
) -> None:
    answer = api.put(f"{place}/client-ca", {"ca_pem": f"Our authority:\n{ACME.pem}"})
    assert answer.status_code == 202, answer.content
    assert api.get(answer["Location"]).json()["type"] == "instance.routes"
    shown = answer.json()["client_ca"]
    assert shown["subjects"] == ["CN=Acme CA"] and len(shown["fingerprints_sha256"][0]) == 64
    assert shown["not_after"] == (NOW + 365 * DAY).replace(microsecond=0).isoformat().replace("+00:00", "Z")
    ACME.client(tmp_path, "alice")
    answer = api.put(f"{place}/revocation-list", {"crl_pem": ACME.revoked("alice", number=7)})
    assert answer.status_code == 202, answer.content
    assert answer.json()["revocation"] == {
        "crl_number": 7,
        "this_update": (NOW - 2 * DAY).replace(microsecond=0).isoformat().replace("+00:00", "Z"),
        "next_update": (NOW + DAY).replace(microsecond=0).isoformat().replace("+00:00", "Z"),
        "count": 1,
    }
    document = certificates_of(instance)["secure"]
    assert document.client_ca_pem == ACME.pem and len(document.revoked) == 16
    assert api.put(f"{place}/client-ca", {"ca_pem": ACME.pem}).status_code == 200  # nothing differs
    assert api.delete(f"{place}/revocation-list").status_code == 202
    assert api.get(place).json()["revocation"] is None
    assert api.delete(f"{place}/client-ca").status_code == 202
    assert api.get(place).json()["client_ca"] is None
    assert certificates_of(instance) == {}
    assert_problem(api.delete(f"{place}/client-ca"), 404, "not_found")
    actions = AuditEntry.objects.filter(action__startswith="route.").order_by("time", "id")
    assert [entry.action for entry in actions] == [
        "route.client_ca_set",
        "route.revocation_list_set",
        "route.revocation_list_removed",
        "route.client_ca_removed",
    ]
    assert actions[0].after["client_ca"]["subjects"] == ["CN=Acme CA"]
    assert Operation.objects.filter(instance=instance).count() == 4


def test_the_key_of_an_uploaded_certificate_is_nowhere_to_be_read(
    api: Api, instance: Instance, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, key = ACME.server("kafka.example", "*.kafka.example")
    answer = api.put(f"{place}/certificate", {"certificate_pem": certificate, "private_key_pem": key})
    assert answer.status_code == 202, answer.content
    shown = answer.json()["certificate"]
    assert (shown["subject"], shown["names"]) == ("CN=kafka.example", ["kafka.example", "*.kafka.example"])
    secret = "".join(key.splitlines()[1:-1])[40:80]
    row = RouteCertificates.objects.get()
    assert "ENCRYPTED PRIVATE KEY" in row.private_key_pem
    with connection.cursor() as cursor:
        texts = [row.private_key_pem, row.certificate_pem, answer.content.decode(), api.get(place).content.decode()]
        for table in ("tenants_auditentry", "instances_operation", "instances_route", "instances_routecertificates"):
            cursor.execute(f"SELECT row_to_json(each)::text FROM {table} each")
            texts += [text for (text,) in cursor.fetchall()]
    assert all(secret not in "".join(text.replace("\\n", "").split()) for text in [*texts, caplog.text])
    assert api.delete(f"{place}/certificate").status_code == 202
    assert api.get(place).json()["certificate"] is None
    assert RouteCertificates.objects.get().private_key_pem == ""


def _wrong_cas(tmp_path: Path) -> list[tuple[str, str]]:
    weak = rsa.generate_private_key(65_537, 1_024)
    leaf = ACME.client(tmp_path, "leaf")
    return [
        ("no certificate", "pem"),
        (pem_of(ACME.certificates_by_name["leaf"]), "not_a_ca"),
        (leaf.read_text(), "private_key"),
        (Authority.make("Old CA", not_after=NOW - timedelta(minutes=1)).pem, "expired"),
        (Authority.make("Weak CA", weak).pem, "key_size"),
        (ACME.pem * (CLIENT_CA_CERTIFICATES_MAX + 1), "count"),
        ("x" * (CLIENT_CA_BYTES_MAX + 1), "max_length"),
        (ACME.pem.replace("M", "N"), "pem"),
    ]


def test_an_invalid_authority_is_refused_and_changes_nothing(api: Api, place: str, tmp_path: Path) -> None:
    for pem, code in _wrong_cas(tmp_path):
        problem = assert_problem(api.put(f"{place}/client-ca", {"ca_pem": pem}), 400)
        assert (problem["errors"][0]["pointer"], problem["errors"][0]["code"]) == ("/ca_pem", code)
    assert api.get(place).json()["client_ca"] is None
    assert not AuditEntry.objects.filter(action="route.client_ca_set").exists()


def test_lists_that_cannot_be_used_are_refused_with_a_reason(api: Api, place: str, tmp_path: Path) -> None:
    crl = f"{place}/revocation-list"
    assert_problem(api.put(crl, {"crl_pem": ACME.revoked()}), 409, "no_client_ca")
    api.put(f"{place}/client-ca", {"ca_pem": ACME.pem})
    delta = x509.DeltaCRLIndicator(1)
    for pem, code in [
        ("no list", "pem"),
        (Authority.make("Acme CA").revoked(), "signer"),  # of the same name, by another key
        (ACME.revoked() * 2, "twice"),
        (ACME.revoked(extensions=[delta]), "delta"),
        (ACME.revoked(serials=range(1, REVOKED_MAX + 2)), "count"),
    ]:
        problem = assert_problem(api.put(crl, {"crl_pem": pem}), 400)
        assert (problem["errors"][0]["pointer"], problem["errors"][0]["code"]) == ("/crl_pem", code)
    assert api.put(crl, {"crl_pem": ACME.revoked(number=5)}).status_code == 202
    assert_problem(api.put(crl, {"crl_pem": ACME.revoked(number=4)}), 409, "older_list")
    assert api.put(crl, {"crl_pem": ACME.revoked(number=6, next_update=NOW - DAY)}).status_code == 202


def test_the_longest_list_and_the_largest_bundle_are_taken(api: Api, place: str) -> None:
    many = [Authority.make(f"CA {number}") for number in range(CLIENT_CA_CERTIFICATES_MAX)]
    bundle = "".join(each.pem for each in many)
    padding = "#" * 79 + "\n"
    bundle += padding * ((CLIENT_CA_BYTES_MAX - len(bundle)) // len(padding))
    assert api.put(f"{place}/client-ca", {"ca_pem": bundle}).status_code == 202
    crl = many[0].revoked(serials=range(2**158, 2**158 + REVOKED_MAX))
    crl += padding * ((REVOCATION_LIST_BYTES_MAX - len(crl)) // len(padding))
    assert len(crl) > 999_000
    answer = api.put(f"{place}/revocation-list", {"crl_pem": crl})
    assert (answer.status_code, answer.json()["revocation"]["count"]) == (202, REVOKED_MAX)
    route = Route.objects.get(name="secure")
    document = certificates_of(route.instance)["secure"].to_json()
    assert len(document) < 400_000 < 1_048_576  # a request to ZooKeeper


def test_a_list_goes_with_the_last_of_its_authorities(api: Api, place: str) -> None:
    other = Authority.make("Other CA")
    api.put(f"{place}/client-ca", {"ca_pem": ACME.pem})
    api.put(f"{place}/revocation-list", {"crl_pem": ACME.revoked(serials=[5])})
    shown = api.put(f"{place}/client-ca", {"ca_pem": other.pem + ACME.pem}).json()
    assert shown["revocation"]["count"] == 1
    assert api.put(f"{place}/client-ca", {"ca_pem": other.pem}).json()["revocation"] is None
    assert bytes(RouteCertificates.objects.get().revoked) == b""


def test_the_list_of_a_removed_authority_neither_counts_nor_is_forgotten(
    api: Api, instance: Instance, place: str
) -> None:
    other = Authority.make("Other CA")
    api.put(f"{place}/client-ca", {"ca_pem": ACME.pem + other.pem})
    lists = ACME.revoked(serials=[5, 6], number=7, next_update=NOW + DAY)
    lists += other.revoked(serials=[8], number=3, next_update=NOW + 40 * DAY)
    both = api.put(f"{place}/revocation-list", {"crl_pem": lists}).json()["revocation"]
    assert (both["count"], both["crl_number"]) == (3, None)
    alone = api.put(f"{place}/client-ca", {"ca_pem": other.pem}).json()["revocation"]
    assert (alone["count"], alone["crl_number"]) == (1, 3)
    services.record_certificate_expiry(NOW + 10 * DAY)
    assert not AuditEntry.objects.filter(action="route.revocation_list_overdue").exists()
    assert AuditEntry.objects.filter(action="route.client_ca_set").latest("time").before["revocation"]["count"] == 3

    again = api.put(f"{place}/client-ca", {"ca_pem": other.pem + ACME.pem}).json()["revocation"]
    assert again == both, "its list is in force again"
    older = ACME.revoked(number=6) + other.revoked(number=3)
    assert_problem(api.put(f"{place}/revocation-list", {"crl_pem": older}), 409, "older_list")
    services.record_certificate_expiry(NOW + 10 * DAY)
    assert AuditEntry.objects.filter(action="route.revocation_list_overdue").count() == 1


def test_lists_whose_parts_are_not_known_count_until_they_are_replaced(api: Api, place: str) -> None:
    other = Authority.make("Other CA")
    api.put(f"{place}/client-ca", {"ca_pem": ACME.pem + other.pem})
    lists = ACME.revoked(serials=[5, 6], number=7) + other.revoked(serials=[8], number=3)
    both = api.put(f"{place}/revocation-list", {"crl_pem": lists}).json()["revocation"]
    RouteCertificates.objects.update(crl_parts={})  # as an earlier version stored it
    assert api.put(f"{place}/client-ca", {"ca_pem": other.pem}).json()["revocation"] == both
    assert api.put(f"{place}/revocation-list", {"crl_pem": other.revoked(number=3)}).json()["revocation"]["count"] == 0


def test_server_certificates_that_would_not_work_are_refused(api: Api, place: str) -> None:
    certificate, key = ACME.server("kafka.example")
    other_key = ACME.server("kafka.example")[1]
    weak = rsa.generate_private_key(65_537, 1_024)
    huge = rsa.RSAPublicNumbers(65_537, 2**5_119 + 1).public_key()
    nameless = pem_of(sign(name_of("x"), weak.public_key(), ACME.name, ACME.key, names=["x"]))
    encrypted = rsa.generate_private_key(65_537, 2_048).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x")
    )
    no_names = sign(name_of("x"), ACME.key.public_key(), ACME.name, ACME.key)
    cases = [
        ("nothing", key, "/certificate_pem", "pem"),
        (certificate, "nothing", "/private_key_pem", "pem"),
        (certificate, encrypted.decode(), "/private_key_pem", "encrypted"),
        (certificate, other_key, "/private_key_pem", "key_mismatch"),
        (certificate + key, key, "/certificate_pem", "private_key"),
        (nameless, key_pem(weak), "/certificate_pem", "key_size"),
        (pem_of(sign(name_of("x"), huge, ACME.name, ACME.key)), key, "/certificate_pem", "key_size"),
        (pem_of(no_names), key_pem(ACME.key), "/certificate_pem", "names"),
        (certificate + Authority.make("Other CA").pem, key, "/certificate_pem", "chain_order"),
        (*ACME.server("old.example", not_after=NOW - timedelta(minutes=1)), "/certificate_pem", "expired"),
    ]
    for certificate_pem, private_key_pem, pointer, code in cases:
        body = {"certificate_pem": certificate_pem, "private_key_pem": private_key_pem}
        problem = assert_problem(api.put(f"{place}/certificate", body), 400)
        assert (problem["errors"][0]["pointer"], problem["errors"][0]["code"]) == (pointer, code)
        assert private_key_pem not in json.dumps(problem)
    assert api.get(place).json()["certificate"] is None


def test_mapping_rules_that_backtrack_elsewhere_are_accepted_and_invalid_ones_are_refused(api: Api, place: str) -> None:
    assert api.patch(place, {"principal_mapping_rules": "RULE:^(a+)+$/$1/, DEFAULT"}).status_code == 202
    problem = assert_problem(api.patch(place, {"principal_mapping_rules": "DEFAULT, RULE:(a/b/"}), 400)
    assert problem["errors"][0]["pointer"] == "/principal_mapping_rules"
    assert "rule 2 ('RULE:(a/b/')" in problem["errors"][0]["detail"]


def test_certificates_are_for_routes_that_ask_for_them(api: Api, instance: Instance, place: str) -> None:
    plain = f"/instances/{instance.pk}/routes/default"
    assert_problem(api.put(f"{plain}/client-ca", {"ca_pem": ACME.pem}), 409, "not_mtls")
    certificate, key = ACME.server("kafka.example")
    body = {"certificate_pem": certificate, "private_key_pem": key}
    assert_problem(api.put(f"{plain}/certificate", body), 409, "not_tls")


def test_without_a_key_of_the_installation_no_private_key_is_taken(
    api: Api, place: str, settings: Any, tmp_path: Path
) -> None:
    settings.TLS_DIR = tmp_path / "elsewhere"
    certificate, key = ACME.server("kafka.example")
    answer = api.put(f"{place}/certificate", {"certificate_pem": certificate, "private_key_pem": key})
    assert_problem(answer, 503, "unavailable")


def test_owners_are_notified_once_of_each_expiry(api: Api, instance: Instance) -> None:
    route = make_secured_route(instance, Authority.make("Acme CA"))
    services.record_certificate_expiry(timezone.now())
    assert not AuditEntry.objects.filter(action__contains="_ends").exists()
    for days in (340, 341, 360, 366):  # of 365
        services.record_certificate_expiry(NOW + timedelta(days=days))
        services.record_certificate_expiry(NOW + timedelta(days=days))
    said = AuditEntry.objects.filter(action="route.certificate_ends").order_by("time", "id")
    assert [entry.after["days_before"] for entry in said] == [30, 7, 0]
    assert AuditEntry.objects.filter(action="route.client_ca_ends").count() == 3
    overdue = AuditEntry.objects.get(action="route.revocation_list_overdue")
    assert (overdue.target_id, overdue.after["route"]) == (instance.pk, route.name)
    events = api.get(f"/instances/{instance.pk}/events").json()["items"]
    assert {"route.revocation_list_overdue"} <= {event["action"] for event in events}


def test_expiries_of_a_deleted_instance_are_not_reported(api: Api, instance: Instance) -> None:
    make_secured_route(instance, Authority.make("Acme CA"))
    Instance.objects.filter(pk=instance.pk).update(deleted_at=NOW)
    assert services.record_certificate_expiry(NOW + timedelta(days=366)) == 0
    assert not AuditEntry.objects.filter(action__contains="_ends").exists()


@pytest.mark.parametrize(("part", "pointer"), [("client-ca", "/ca_pem"), ("certificate", "/certificate_pem")])
def test_a_key_of_a_kind_that_nobody_knows_is_refused_with_a_reason(
    api: Api, place: str, part: str, pointer: str
) -> None:
    strange = with_unknown_curve(ACME.certificate)
    body = (
        {"ca_pem": strange}
        if part == "client-ca"
        else {"certificate_pem": strange, "private_key_pem": key_pem(ACME.key)}
    )
    problem = assert_problem(api.put(f"{place}/{part}", body), 400, "invalid_request")
    assert problem["errors"][0]["pointer"] == pointer
    assert problem["errors"][0]["code"] == "key_kind"


def with_unknown_curve(certificate: x509.Certificate) -> str:
    """Returns a certificate with another object identifier in the place of P-256's."""
    der = certificate.public_bytes(Encoding.DER)
    known, strange = bytes.fromhex("06082a8648ce3d030107"), bytes.fromhex("06082a8648ce3d03017f")
    assert known in der
    return ssl.DER_cert_to_PEM_cert(der.replace(known, strange))


def test_a_private_key_with_a_huge_prime_costs_no_time(api: Api, place: str) -> None:
    """OpenSSL tests primality, which takes minutes for 44,497 bits."""
    key = rsa.generate_private_key(65_537, 2_048)
    name = name_of("kafka.example")
    certificate = sign(name, key.public_key(), ACME.name, ACME.key, names=["kafka.example"])
    numbers = key.private_numbers()
    parts = [0, numbers.public_numbers.n, numbers.public_numbers.e, numbers.d, 2**44_497 - 1, numbers.q, 1, 1, 1]
    huge = pem_block("RSA PRIVATE KEY", der_of(parts))
    began_s = time.monotonic()
    body = {"certificate_pem": pem_of(certificate), "private_key_pem": huge}
    problem = assert_problem(api.put(f"{place}/certificate", body), 400, "invalid_request")
    assert time.monotonic() - began_s < 5
    assert problem["errors"][0]["pointer"] == "/private_key_pem"


def der_of(numbers: Sequence[int]) -> bytes:
    """Returns a DER sequence of integers."""
    return _element(0x30, b"".join(_element(2, n.to_bytes(n.bit_length() // 8 + 1, "big")) for n in numbers))


def _element(tag: int, content: bytes) -> bytes:
    count = len(content)
    if count < 0x80:
        return bytes((tag, count)) + content
    size = (count.bit_length() + 7) // 8
    return bytes((tag, 0x80 | size)) + count.to_bytes(size, "big") + content


def pem_block(label: str, der: bytes) -> str:
    lines = base64.encodebytes(der).decode()
    return f"-----BEGIN {label}-----\n{lines}-----END {label}-----\n"
