"""Where an archive is: `file:` below a folder of the tenant's own on our disks, or `s3:` with the tenant's keys.

Pure but for `open_place`, which Spark's workers call too: no setting of Django is read here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlsplit

from billing.archives.tunnel import Networks, Tunnel
from billing.lake.address import LakePlace
from tenants.outbound import HTTPS_PORT

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

PARAMETERS: Final = frozenset({"region", "endpoint"})
CONNECT_TIMEOUT_S: Final = 10.0
REQUEST_TIMEOUT_S: Final = 30.0
# Neither hidden nor a way out: each part of a path begins with a letter, a digit or `_`.
_PATH: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=-]{0,99}(/[A-Za-z0-9_][A-Za-z0-9_.=-]{0,99}){0,9}\Z")
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]\Z")
_REGION: Final = re.compile(r"[a-z]{2}[a-z0-9-]{1,30}\Z")


class AddressRefused(ValueError):
    """An archive cannot be there. The message is for who named the address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """`bucket` is empty for a folder on our disks; `endpoint` is empty for AWS."""

    path: str
    bucket: str = ""
    region: str = ""
    endpoint: str = ""

    @property
    def server(self) -> tuple[str, int]:
        """Host and port of what speaks S3."""
        parts = urlsplit(self.endpoint)
        return (parts.hostname or f"s3.{self.region}.amazonaws.com", parts.port or HTTPS_PORT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """All that opens the place: for a task of Spark."""

    address: Address
    # Where file: addresses of this tenant lie.
    root: str
    # Behind the address, the archive's own.
    folder: str
    access_key_id: str = ""
    secret_access_key: str = field(default="", repr=False)
    # What our machines may connect to because a tenant says so, and whom they trust beside the usual authorities.
    refused: Networks = ()
    private: Networks = ()
    ca_file: str = ""


def parse(url: str) -> Address:
    """Raises `AddressRefused`."""
    try:
        parts = urlsplit(url)
        parameters = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise AddressRefused("It is not a URL.") from None
    if not url.isascii() or any(character <= " " for character in url) or "#" in url:
        raise AddressRefused("It is not a URL.")
    if parts.scheme == "file":
        return _folder(url)
    if parts.scheme != "s3":
        raise AddressRefused("The address must begin with file: or s3://.")
    return _bucket(parts.netloc, parts.path.strip("/"), parameters)


def _folder(url: str) -> Address:
    path = url.removeprefix("file:")
    if not _PATH.match(path):
        raise AddressRefused("A folder is written file:name or file:name/name, of letters, digits and . _ = -.")
    return Address(path=path)


def _bucket(bucket: str, path: str, parameters: list[tuple[str, str]]) -> Address:
    named = dict(parameters)
    if len(named) != len(parameters) or not named.keys() <= PARAMETERS:
        raise AddressRefused("Behind the path may be region and endpoint, once each.")
    if not _BUCKET.match(bucket):
        raise AddressRefused("The name of the bucket must be 3 to 63 lower case letters, digits and -.")
    if path and not _PATH.match(path):
        raise AddressRefused("The path must be of letters, digits and . _ = -.")
    if not _REGION.match(named.get("region", "")):
        raise AddressRefused("The address must name the region: s3://bucket/path?region=eu-central-1.")
    return Address(path=path, bucket=bucket, region=named["region"], endpoint=named.get("endpoint", ""))


@contextmanager
def open_place(store: Store) -> Iterator[LakePlace]:
    """Raises `AddressRefused` where a folder leads out of the tenant's, `OSError`."""
    address = store.address
    if address.bucket:
        host, port = address.server
        with Tunnel(host, port, refused=store.refused, private=store.private) as tunnel:
            yield LakePlace(_s3(store, tunnel), "/".join(filter(None, (address.bucket, address.path, store.folder))))
        return
    from pyarrow.fs import LocalFileSystem

    root = Path(store.root)
    folder = root / address.path / store.folder
    # A link that an operator's hand put there is no way out either.
    if not folder.resolve().is_relative_to(root.resolve()):
        raise AddressRefused("The folder is not the tenant's.")
    yield LakePlace(LocalFileSystem(), str(folder))


def _s3(store: Store, tunnel: Tunnel) -> FileSystem:
    from pyarrow.fs import S3FileSystem

    return S3FileSystem(
        access_key=store.access_key_id,
        secret_key=store.secret_access_key,
        region=store.address.region,
        scheme="https",
        endpoint_override=urlsplit(store.address.endpoint).netloc or None,
        proxy_options={"scheme": "http", "host": "127.0.0.1", "port": tunnel.port},
        connect_timeout=CONNECT_TIMEOUT_S,
        request_timeout=REQUEST_TIMEOUT_S,
        tls_ca_file_path=store.ca_file or None,
    )
