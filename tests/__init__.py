"""The whole test suite. `docs/HACKING.md` says how to run a part of it."""
