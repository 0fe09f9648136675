"""Penstock's command line: `manage.py up` starts the whole product, the rest are Django's and the apps' commands."""

import importlib.util
import os
import sys

OLDEST_PYTHON = (3, 11)


def main() -> int:
    """Run one command. `up` and `down` come before Django is imported, so that they can say what is missing."""
    if sys.version_info < OLDEST_PYTHON:
        wanted = ".".join(map(str, OLDEST_PYTHON))
        print(f"Penstock needs Python {wanted} or later, this is {sys.version.split()[0]}.", file=sys.stderr)
        print(f"Next step: make setup PYTHON=/path/to/python{wanted}", file=sys.stderr)
        return 2
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    if importlib.util.find_spec("psutil") is None or importlib.util.find_spec("django") is None:
        print(f"Penstock's packages are not installed for {sys.executable}.", file=sys.stderr)
        print("Next step: make setup, and then .venv/bin/python manage.py instead.", file=sys.stderr)
        return 2
    if sys.argv[1:2] == ["up"] or sys.argv[1:2] == ["down"]:
        from config.supervisor.command import run

        return run(sys.argv[1:])
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
    return 0


if __name__ == "__main__":
    sys.exit(main())
