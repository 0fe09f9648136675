"""Manifests of backups: round trip, and refusal of damaged, foreign or newer ones."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from config.backup import manifest as module
from config.backup.errors import BackupRefused
from config.backup.manifest import DATABASE_FILE, TREE_FILE, FileEntry, Manifest

DIGEST = "ab" * 32
WHOLE = Manifest(
    penstock="0.1.0",
    made_at="2026-11-29T10:00:00Z",
    postgresql=18,
    migrations={"brokers": ("0001_initial", "0002_more"), "tenants": ("0001_initial",)},
    clusters=("cl-1",),
    nodes=12,
    newest_transaction=(3 << 32) + 7,
    is_consistent=True,
    outside=("SECRET_KEY",),
    files={
        DATABASE_FILE: FileEntry(10, DIGEST),
        TREE_FILE: FileEntry(20, DIGEST),
        "state/secrets/secret_key": FileEntry(30, DIGEST),
        "state/shape.json": FileEntry(40, DIGEST),
    },
)


def resealed(**changes: Any) -> bytes:
    """Returns a manifest with other values and a matching checksum, as a newer version or an attacker writes it."""
    body = json.loads(WHOLE.to_json()) | changes
    del body["checksum"]
    return json.dumps(body | {"checksum": module._checksum(body)}).encode()


def test_a_manifest_is_read_as_it_was_written() -> None:
    assert Manifest.from_json(WHOLE.to_json()) == WHOLE
    assert WHOLE.state_files == ["secrets/secret_key", "shape.json"]


@pytest.mark.parametrize("position", range(0, len(WHOLE.to_json()), 97))
def test_a_byte_that_differs_is_noticed(position: int) -> None:
    raw = bytearray(WHOLE.to_json())
    raw[position] ^= 0x01
    with pytest.raises(BackupRefused, match="damaged"):
        Manifest.from_json(bytes(raw))


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b"null", WHOLE.to_json()[:-40]])
def test_an_invalid_manifest_is_refused(raw: bytes) -> None:
    with pytest.raises(BackupRefused, match="damaged"):
        Manifest.from_json(raw)


def test_a_newer_format_is_refused_with_the_version_to_install() -> None:
    with pytest.raises(BackupRefused, match="format 2") as refusal:
        Manifest.from_json(resealed(format=2, penstock="0.9.0"))
    assert "0.9.0" in refusal.value.next_step


@pytest.mark.parametrize(
    "name", ["../evil", "/etc/passwd", "state/../../evil", "state", "elsewhere/file", "state//twice", "state/nul\0"]
)
def test_a_path_out_of_the_backup_is_refused(name: str) -> None:
    files = json.loads(WHOLE.to_json())["files"] | {name: {"bytes": 1, "sha256": DIGEST}}
    with pytest.raises(BackupRefused):
        Manifest.from_json(resealed(files=files))


@pytest.mark.parametrize("name", [DATABASE_FILE, TREE_FILE])
def test_a_backup_without_database_or_tree_is_refused(name: str) -> None:
    files = {other: entry for other, entry in json.loads(WHOLE.to_json())["files"].items() if other != name}
    with pytest.raises(BackupRefused):
        Manifest.from_json(resealed(files=files))


def test_migrations_that_the_code_does_not_have_are_named() -> None:
    known = [("brokers", "0001_initial"), ("tenants", "0001_initial"), ("brokers", "0003_not_in_the_backup")]
    assert WHOLE.unknown_migrations(known) == ["brokers.0002_more"]
    assert replace(WHOLE, migrations={}).unknown_migrations([]) == []
