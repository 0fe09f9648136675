"""Refusal of a backup or of a restore."""

from __future__ import annotations

from config.embedded.process import StartFailed


class BackupRefused(StartFailed):
    """A backup or a restore that is not carried out. `detail` is the reason, `next_step` the remedy."""
