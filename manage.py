"""Penstock's command line: `manage.py up` starts the whole product, the rest are Django's and the apps' commands."""

import argparse
import importlib.util
import os
import sys

OLDEST_PYTHON = (3, 11)
WITH_STATE_DIR = ("operator_token", "backup", "restore", "prepare", "agent")


def main() -> int:
    """Run one command. `up` and `down` come before Django is imported, so that they can say what is missing."""
    if sys.version_info < OLDEST_PYTHON:
        wanted = ".".join(map(str, OLDEST_PYTHON))
        print(f"Penstock needs Python {wanted} or later, this is {sys.version.split()[0]}.", file=sys.stderr)
        print(f"Next step: make setup PYTHON=/path/to/python{wanted}", file=sys.stderr)
        return 2
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    if sys.argv[1:] in (["--version"], ["version"]):
        from brokers.contract.version import VERSION

        print(f"Penstock {VERSION}")
        return 0
    if importlib.util.find_spec("psutil") is None or importlib.util.find_spec("django") is None:
        print(f"Penstock's packages are not installed for {sys.executable}.", file=sys.stderr)
        print("Next step: make setup, and then .venv/bin/python manage.py instead.", file=sys.stderr)
        return 2
    if sys.argv[1:2] == ["up"] or sys.argv[1:2] == ["down"]:
        from config.supervisor.command import run

        return run(sys.argv[1:])
    if sys.argv[1:2] and sys.argv[1] in WITH_STATE_DIR:
        _take_state_dir(sys.argv[2:])
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
    return 0


def _take_state_dir(words: list[str]) -> None:
    """`--state-dir` of one of Django's commands: settings depend on it, so it is read before they are."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--state-dir")
    given = parser.parse_known_args(words)[0].state_dir
    if given:
        os.environ["PENSTOCK_STATE_DIR"] = os.path.abspath(os.path.expanduser(given))  # noqa: PTH100, PTH111


if __name__ == "__main__":
    sys.exit(main())
