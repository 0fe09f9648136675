"""Code of the snippets is correct in its language, for every kind of route and for users with hostile names.

`tests/product/system/test_snippets.py` runs it where the client libraries are. A language whose tool is not here is
skipped; C# has none on most machines.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from instances.routes.kinds import SECURITIES
from instances.views.snippet_security import Login, client_security
from instances.views.snippets import TEMPLATES, snippets

CA_URL = "https://console.example/api/v1/ca.pem"
PLACE = SimpleNamespace(bootstrap_servers="kafka.example:19092,kafka.example:19093")
LOGINS = (Login("etl", "pw"), Login('o"neil\\ ${x} {y} <topic> $(id) `id` été', "p'w\"\\n%s"))
TOOL_TIMEOUT_S = 60
# A compiler of Java that only parses: the libraries that the code imports are not here.
JAVA_PARSER = """\
import com.sun.source.util.JavacTask;
import javax.tools.*;
public class Parse {
    public static void main(String[] files) throws Exception {
        var compiler = ToolProvider.getSystemJavaCompiler();
        var found = new DiagnosticCollector<JavaFileObject>();
        var manager = compiler.getStandardFileManager(found, null, null);
        ((JavacTask) compiler.getTask(null, manager, found, null, null, manager.getJavaFileObjects(files))).parse();
        found.getDiagnostics().forEach(System.err::println);
        System.exit(found.getDiagnostics().isEmpty() ? 0 : 1);
    }
}
"""


def call(*command: str) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"the program {command[0]} is not installed")
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def parse_java(files: list[Path]) -> None:
    (files[0].parent / "Parse.java").write_text(JAVA_PARSER)
    call("java", str(files[0].parent / "Parse.java"), *map(str, files))


def parse_python(files: list[Path]) -> None:
    for file in files:
        ast.parse(file.read_text())


def with_each(*command: str) -> Callable[[list[Path]], None]:
    def check(files: list[Path]) -> None:
        for file in files:
            call(*command, str(file))

    return check


CHECKS: dict[str, tuple[str, Callable[[list[Path]], None]]] = {
    "python": ("py", parse_python),
    "java": ("java", parse_java),
    "go": ("go", with_each("gofmt", "-e", "-l")),
    "node": ("js", with_each("node", "--check")),
    "rust": ("rs", with_each("rustfmt", "--edition", "2021", "--emit", "stdout", "--quiet")),
    "kcat": ("sh", with_each("bash", "-n")),
    "shell": ("sh", with_each("bash", "-n")),
}


def test_every_language_but_one_has_its_check() -> None:
    assert {choice for choice, *_ in TEMPLATES} - CHECKS.keys() == {"csharp"}


@pytest.mark.parametrize("choice", CHECKS)
def test_a_snippet_is_correct_for_every_route_and_user(choice: str, tmp_path: Path) -> None:
    suffix, check = CHECKS[choice]
    files = []
    for number, (security, login) in enumerate((kind, login) for kind in SECURITIES for login in LOGINS):
        known = client_security(SimpleNamespace(security=security), login, CA_URL)
        (code,) = (snippet.code for snippet in snippets(PLACE, "orders", known) if snippet.choice == choice)
        files.append(tmp_path / f"snippet{number}.{suffix}")
        files[-1].write_text(code, encoding="utf-8")
    check(files)


def test_snippets_produce_and_consume() -> None:
    for snippet in snippets(PLACE, "orders"):
        assert "o-1" in snippet.code
        assert any(
            word in snippet.code for word in ("subscribe", "Subscribe", "ConsumeTopics", "kcat -C", "consumer.sh")
        )
