"""Error texts about uploaded certificates and revocation lists, translated when they are shown."""

from __future__ import annotations

from typing import Final

from django.utils.translation import gettext_noop

from tenants.errors import Message

THE_CERTIFICATE: Final = Message(gettext_noop("The certificate"))
NO_CERTIFICATE: Final = Message(gettext_noop("This is no certificate. Give it as PEM (-----BEGIN CERTIFICATE-----)."))
UNREADABLE_CERTIFICATE: Final = Message(gettext_noop("A certificate cannot be read."))
CONTAINS_PRIVATE_KEY: Final = Message(gettext_noop("There is a private key in it. Take it out; nothing was kept."))
NO_NAMES: Final = Message(gettext_noop("The certificate names no host (subjectAltName); clients would refuse it."))
NOT_FOR_SERVERS: Final = Message(gettext_noop("The certificate is not for servers (extendedKeyUsage)."))
ENCRYPTED_KEY: Final = Message(
    gettext_noop("The key is encrypted. Give it without a password; it is kept encrypted here.")
)
UNREADABLE_KEY: Final = Message(gettext_noop("The key cannot be read. Give it as PEM (-----BEGIN PRIVATE KEY-----)."))
KEY_MISMATCH: Final = Message(gettext_noop("The key is not that of the first certificate."))
UNREADABLE_LIST: Final = Message(gettext_noop("A list cannot be read. Give it as PEM (-----BEGIN X509 CRL-----)."))
DELTA_LIST: Final = Message(gettext_noop("A list says what changed only (delta). Give a whole one."))
PARTIAL_LIST: Final = Message(
    gettext_noop("A list is of several authorities or of some reasons only. Give a whole one.")
)


def certificate(number: int) -> Message:
    return Message(gettext_noop("Certificate %(n)s"), n=number)


def not_a_ca(label: str) -> Message:
    return Message(gettext_noop("%(which)s is not one of an authority (CA:TRUE, keyCertSign)."), which=label)


def chain_order(label: str) -> Message:
    return Message(gettext_noop("%(which)s is not signed by the one behind it."), which=label)


def expired(label: str, at: str) -> Message:
    return Message(gettext_noop("%(which)s expired at %(at)s."), which=label, at=at)


def not_yet(label: str, since: str) -> Message:
    return Message(gettext_noop("%(which)s is valid from %(at)s on."), which=label, at=since)


def key_size(label: str, bits: int, bits_min: int, bits_max: int) -> Message:
    text = gettext_noop("%(which)s has an RSA key of %(n)s bits; use %(least)s to %(most)s.")
    return Message(text, which=label, n=bits, least=bits_min, most=bits_max)


def key_kind(label: str) -> Message:
    text = gettext_noop("%(which)s has a key that is not taken here; use RSA, or EC with P-256, P-384 or P-521.")
    return Message(text, which=label)


def too_many_certificates(count: int, most: int) -> Message:
    return Message(gettext_noop("There are %(n)s certificates, %(most)s at most."), n=count, most=most)


def too_long(bytes_max: int) -> Message:
    return Message(gettext_noop("Give %(n)s bytes at most."), n=f"{bytes_max:,}")


def wrong_list_count(most: int) -> Message:
    return Message(gettext_noop("Give 1 to %(n)s lists as PEM (-----BEGIN X509 CRL-----)."), n=most)


def two_lists(issuer: str) -> Message:
    return Message(gettext_noop("There are two lists of %(issuer)s."), issuer=issuer)


def older_list(before: int, number: int) -> Message:
    text = gettext_noop("The list in force has the number %(before)s, this one %(n)s. Remove the list first.")
    return Message(text, before=before, n=number)


def list_begins_later(at: str) -> Message:
    return Message(gettext_noop("A list begins at %(at)s, which is later."), at=at)


def too_many_revoked(most: int) -> Message:
    return Message(gettext_noop("The lists have more than %(n)s certificates."), n=most)


def signer(issuer: str) -> Message:
    return Message(gettext_noop("A list of %(issuer)s is signed by no authority of this route."), issuer=issuer)
