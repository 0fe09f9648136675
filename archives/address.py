"""Destination of an archive: `file:` below the tenant's folder on local disks, or `s3:` with the tenant's keys.

Pure except for `open_destination`, which Spark workers also call; therefore no Django setting is read here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlsplit

from archives import limits
from archives.tunnel import Networks, Tunnel
from billing.lake.address import Lake
from tenants.outbound import HTTPS_PORT

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

PARAMETERS: Final = frozenset({"region", "endpoint"})
CONNECT_TIMEOUT_S: Final = 10.0
REQUEST_TIMEOUT_S: Final = 30.0
# No hidden files and no `..`: each part of a path begins with a letter, a digit or `_`.
_PATH: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=-]{0,99}(/[A-Za-z0-9_][A-Za-z0-9_.=-]{0,99}){0,9}\Z")
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]\Z")
_REGION: Final = re.compile(r"[a-z]{2}[a-z0-9-]{1,30}\Z")


class AddressRefused(ValueError):
    """The address is not allowed for an archive. The message is shown to the user who entered it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Parsed address. `bucket` is empty for a local folder; `endpoint` is empty for AWS."""

    path: str
    bucket: str = ""
    region: str = ""
    endpoint: str = ""

    @property
    def server(self) -> tuple[str, int]:
        """Host and port of the S3 server."""
        parts = urlsplit(self.endpoint)
        return (parts.hostname or f"s3.{self.region}.amazonaws.com", parts.port or HTTPS_PORT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """Everything needed to open the destination in a Spark task."""

    address: Address
    # Folder below which the tenant's `file:` addresses lie.
    root: str
    # The archive's own folder below the address.
    folder: str
    access_key_id: str = ""
    secret_access_key: str = field(default="", repr=False)
    # Public networks that tenants may not reach, private networks that they may reach, and a file of CA certificates
    # (PEM) that are trusted instead of the system's.
    refused: Networks = ()
    private: Networks = ()
    ca_file: str = ""


def parse(url: str) -> Address:
    """Parses the address of an archive. Raises `AddressRefused`."""
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
        raise AddressRefused("The address must begin with s3://, postgresql:// or file:.")
    return _bucket(parts.netloc, parts.path.strip("/"), parameters)


def _folder(url: str) -> Address:
    path = url.removeprefix("file:")
    if not _PATH.match(path):
        raise AddressRefused("A folder is written file:name or file:name/name, of letters, digits and . _ = -.")
    return Address(path=path)


def _bucket(bucket: str, path: str, parameters: list[tuple[str, str]]) -> Address:
    options = dict(parameters)
    if len(options) != len(parameters) or not options.keys() <= PARAMETERS:
        raise AddressRefused("Behind the path may be region and endpoint, once each.")
    if not _BUCKET.match(bucket):
        raise AddressRefused("The name of the bucket must be 3 to 63 lower case letters, digits and -.")
    if path and not _PATH.match(path):
        raise AddressRefused("The path must be of letters, digits and . _ = -.")
    if not _REGION.match(options.get("region", "")):
        raise AddressRefused("The address must name the region: s3://bucket/path?region=eu-central-1.")
    return Address(path=path, bucket=bucket, region=options["region"], endpoint=options.get("endpoint", ""))


@contextmanager
def open_destination(store: Store) -> Iterator[Lake]:
    """Opens the destination for the duration of the context, a bucket for `limits.BUCKET_OPEN_S` at most.

    Raises:
        AddressRefused: a local folder lies outside the tenant's folder.
        OSError: the destination does not answer, or not in time.
    """
    address = store.address
    if address.bucket:
        host, port = address.server
        within_s = limits.BUCKET_OPEN_S
        with Tunnel(host, port, refused=store.refused, private=store.private, within_s=within_s) as tunnel:
            folder = "/".join(filter(None, (address.bucket, address.path, store.folder)))
            try:
                yield Lake(_s3(store, tunnel), folder)
            except OSError as trouble:
                if tunnel.remaining_s:
                    raise
                raise TimeoutError(f"The bucket took more than {within_s:.0f} seconds.") from trouble
        return
    from pyarrow.fs import LocalFileSystem

    root = Path(store.root)
    path = root / address.path / store.folder
    # A symbolic link created by an operator must not lead outside either.
    if not path.resolve().is_relative_to(root.resolve()):
        raise AddressRefused("The folder is not the tenant's.")
    yield Lake(LocalFileSystem(), str(path))


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
