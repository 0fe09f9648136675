"""Errors that end a broker process, as opposed to those in a response to a peer."""

from __future__ import annotations


class EngineError(Exception):
    """The process cannot start or must not continue; the text is the one line for the operator."""


class SettingsWrong(EngineError):
    """The settings file, or a file that it names, cannot be used."""


class StartFailed(EngineError):
    """The environment lacks something that the start needs: a port, a directory, ZooKeeper."""
