"""Keys of agents: their creation, certificate signing requests, signatures of requests and their verification.

Only keys on the curve P-256 are used, like those of the authorities.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

_ALGORITHM: Final = ec.ECDSA(hashes.SHA256())


def new_key() -> ec.EllipticCurvePrivateKey:
    """Returns a new private key."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Returns a private key for a file that only its owner can read."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def load_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    """Returns the private key of a file. Raises `ValueError`."""
    key = load_pem_private_key(pem, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("the key is not one of the curve P-256")
    return key


def request_pem(key: ec.EllipticCurvePrivateKey, name: str) -> str:
    """Returns a certificate signing request. The authority takes nothing but the key from it."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return request.public_bytes(Encoding.PEM).decode()


def requested_key(pem: str) -> ec.EllipticCurvePublicKey:
    """Returns the public key of a certificate signing request. Raises `ValueError` unless its sender has the key."""
    try:
        request = x509.load_pem_x509_csr(pem.encode())
        key = request.public_key()
        is_signed = request.is_signature_valid
    except (UnsupportedAlgorithm, InvalidSignature) as error:
        raise ValueError("the request cannot be read") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ValueError("the key is not one of the curve P-256")
    if not is_signed:
        raise ValueError("the request is not signed with its key")
    return key


def sign(key: ec.EllipticCurvePrivateKey, text: bytes) -> bytes:
    return key.sign(text, _ALGORITHM)


def is_signed_by(certificate_pem: str, text: bytes, signature: bytes) -> bool:
    """True if the text was signed with the key of a certificate."""
    key = x509.load_pem_x509_certificate(certificate_pem.encode()).public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey), "authorities sign such keys only"
    try:
        key.verify(signature, text, _ALGORITHM)
    except InvalidSignature:
        return False
    return True


def require_certificate(certificate_pem: str, *, authority_pem: str, key: ec.EllipticCurvePrivateKey, uri: str) -> None:
    """Raises `ValueError` unless a certificate is signed by the authority, for this key and with this identity."""
    certificate = x509.load_pem_x509_certificate(certificate_pem.encode())
    authority = x509.load_pem_x509_certificate(authority_pem.encode())
    try:
        certificate.verify_directly_issued_by(authority)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound) as error:
        raise ValueError("the certificate is not one of the authority's") from error
    if certificate.public_key() != key.public_key():
        raise ValueError("the certificate is for another key")
    if uri not in names.get_values_for_type(x509.UniformResourceIdentifier):
        raise ValueError("the certificate is for another host")


def fingerprint(certificate_pem: bytes) -> str:
    """Returns the SHA-256 of a certificate in hexadecimal digits. Raises `ValueError`."""
    der = x509.load_pem_x509_certificate(certificate_pem).public_bytes(Encoding.DER)
    return hashlib.sha256(der).hexdigest()


def expires_at(certificate_pem: bytes) -> datetime:
    """Returns the end of a certificate. Raises `ValueError`."""
    return x509.load_pem_x509_certificate(certificate_pem).not_valid_after_utc


def serial_of(certificate_pem: bytes) -> int:
    """Returns the serial number of a certificate. Raises `ValueError`."""
    return x509.load_pem_x509_certificate(certificate_pem).serial_number
