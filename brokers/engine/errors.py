"""What ends a broker process, as opposed to what a peer is answered."""

from __future__ import annotations


class EngineError(Exception):
    """The process cannot start or must not go on; the text is the one line a person reads."""


class SettingsWrong(EngineError):
    """The settings file, or something it points at, cannot be used."""


class StartFailed(EngineError):
    """The world did not give what starting needs: a port, a directory, ZooKeeper."""
