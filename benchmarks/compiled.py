"""Selects the compiled modules of the engine, if they exist; must be imported before any module of the engine."""

from __future__ import annotations

from brokers.native import finder

MODULES = "compiled" if finder.install() else "plain"
