"""Import this before anything of the engine: from then on its modules are the compiled ones, if they are there."""

from __future__ import annotations

from brokers.native import finder

MODULES = "compiled" if finder.install() else "plain"
