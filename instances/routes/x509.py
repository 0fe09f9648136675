"""Parser of the fields of a DER certificate that identify a client. Pure.

OpenSSL verifies certificates; this module parses verified ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

_SEQUENCE: Final = 0x30
_SET: Final = 0x31
_INTEGER: Final = 0x02
_OID: Final = 0x06
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_LONG_LENGTH: Final = 0x80
_LENGTH_BYTES_MAX: Final = 4

# Attribute types that Java writes by keyword; it writes all others by number (RFC 2253).
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
# UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString: Java reads all of them as UTF-8.
_TEXT_TAGS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
_ESCAPED: Final = frozenset(',=+<>#;"\\')


class _Element(NamedTuple):
    """Position of a DER element and of its content in the bytes; both end at `end`."""

    tag: int
    element_start: int
    content_start: int
    end: int


class Certificate(NamedTuple):
    """Fields of a certificate in DER; `serial` is the content of the number without tag and length."""

    serial: bytes
    subject: bytes
    public_key: bytes
    not_after: datetime


def read_certificate(der: bytes) -> Certificate:
    """Returns the fields of a certificate. Raises ValueError if it is malformed."""
    whole = _element(der, 0, len(der))
    signed = _expect(_element(der, whole.content_start, whole.end), _SEQUENCE)
    fields = list(_elements(der, signed))
    if fields and fields[0].tag == _VERSION:
        del fields[0]
    try:
        serial, _algorithm, _issuer, validity, subject, public_key = fields[:6]
    except ValueError:
        raise ValueError("this is no certificate") from None
    _expect(serial, _INTEGER)
    times = list(_elements(der, _expect(validity, _SEQUENCE)))
    if len(times) != 2:
        raise ValueError("this is no certificate")
    return Certificate(
        serial=der[serial.content_start : serial.end],
        subject=der[subject.element_start : subject.end],
        public_key=der[public_key.element_start : public_key.end],
        not_after=_time(der, times[1]),
    )


def distinguished_name(subject: bytes) -> str:
    """Returns a subject in the RFC 2253 form of Java's X500Principal, which is Kafka's name of a client.

    Raises ValueError.
    """
    relative_names = list(_elements(subject, _expect(_element(subject, 0, len(subject)), _SEQUENCE)))
    return ",".join(
        "+".join(_attribute(subject, attribute) for attribute in _elements(subject, _expect(relative_name, _SET)))
        for relative_name in reversed(relative_names)
    )


def _attribute(der: bytes, attribute: _Element) -> str:
    parts = list(_elements(der, _expect(attribute, _SEQUENCE)))
    if len(parts) != 2 or parts[0].tag != _OID:
        raise ValueError("this is no name")
    oid, value = _oid(der[parts[0].content_start : parts[0].end]), parts[1]
    keyword = _KEYWORDS.get(oid)
    if keyword is None or value.tag not in _TEXT_TAGS:
        return f"{keyword or oid}=#{der[value.element_start : value.end].hex()}"
    return f"{keyword}={_escaped(der[value.content_start : value.end].decode(errors='replace'))}"


def _escaped(text: str) -> str:
    result = "".join("\\00" if char == "\0" else f"\\{char}" if char in _ESCAPED else char for char in text)
    inner = result.strip(" \r")
    leading = len(result) - len(result.lstrip(" \r"))
    trailing = len(result) - len(inner) - leading if inner else 0
    spaces = result[:leading], result[len(result) - trailing :]
    escaped_leading, escaped_trailing = ("".join(f"\\{char}" for char in part) for part in spaces)
    return escaped_leading + inner + escaped_trailing


def _oid(content: bytes) -> str:
    if not content:
        raise ValueError("this is no object identifier")
    numbers: list[int] = []
    value = 0
    for byte in content:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    if not numbers:
        raise ValueError("this is no object identifier")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _time(der: bytes, element: _Element) -> datetime:
    text = der[element.content_start : element.end].decode("ascii")
    if element.tag == _UTC_TIME:
        # RFC 5280: a year of two digits is in 1950 to 2049.
        text = ("19" if text[:2] >= "50" else "20") + text
    elif element.tag != _GENERALIZED_TIME:
        raise ValueError("this is no time")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _expect(element: _Element, tag: int) -> _Element:
    if element.tag != tag:
        raise ValueError("this is no certificate")
    return element


def _elements(der: bytes, parent: _Element) -> Iterator[_Element]:
    at = parent.content_start
    while at < parent.end:
        element = _element(der, at, parent.end)
        yield element
        at = element.end


def _element(der: bytes, at: int, end: int) -> _Element:
    if at + 2 > end:
        raise ValueError("a certificate is cut off")
    tag, length, start = der[at], der[at + 1], at + 2
    if length & _LONG_LENGTH:
        count = length & ~_LONG_LENGTH
        if not 1 <= count <= _LENGTH_BYTES_MAX:
            raise ValueError("a length is not valid DER")
        length = int.from_bytes(der[start : start + count], "big")
        start += count
    if start + length > end:
        raise ValueError("a certificate is cut off")
    return _Element(tag, at, start, start + length)
