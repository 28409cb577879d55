"""`init`: make a project ready for its first item."""

import json
import re
from pathlib import Path
from typing import Annotated

from agent_harness.cli.opening import Json, Texts, here, need_repository, opt, readable
from agent_harness.cli.output import emit, say, write_whole
from agent_harness.errors import HarnessError, UsageError

TEMPLATE = Path(__file__).with_name("template.toml")

PYTEST = "python3 -m pytest -q"
UNITTEST = "python3 -m unittest discover"


def init(
    *,
    check: Annotated[Texts, opt(metavar="CMD", help="A test command, instead of the found ones. Repeatable.")] = None,
    as_json: Json = False,
) -> None:
    """Write a harness.toml for this repository. Nothing that exists is changed."""
    from agent_harness.config import find_project

    found = find_project(here())
    need_repository(str(found.root))
    if found.file is not None:
        raise UsageError(f"{found.file} is there already", why="init never overwrites", next="edit it")
    checks = [readable(one, "--check") for one in check or []] or detected(found.root)
    path = found.root / "harness.toml"
    try:
        text = TEMPLATE.read_text(encoding="utf-8")
        write_whole(
            path, text.replace("checks = []", f"checks = {json.dumps(checks, ensure_ascii=False)}", 1), over=False
        )
    except OSError as error:
        raise HarnessError(f"cannot write {path}", why=error.strerror or "") from error
    emit({"file": path, "checks": checks}, as_json, str(path))
    if not checks:
        say("no tests were recognised: put a command that runs them under checks")
    say("next: configure [routes.main] in harness.toml, then: agent-harness doctor; agent-harness queue add TITLE")


def detected(root: Path) -> list[str]:
    """Test commands of the tools whose files are there."""
    found = [command for name, command in COMMANDS.items() if (root / name).is_file()]
    return [*python(root), *found, *javascript(root)]


SETTINGS = ("pyproject.toml", "setup.cfg", "tox.ini")
COMMANDS = {"Cargo.toml": "cargo test", "go.mod": "go test -v ./..."}


def python(root: Path) -> list[str]:
    """The runner that something names or that tests are written for: pytest, else unittest where there are files."""
    tests = [*root.glob("test_*.py"), *root.glob("tests/**/test_*.py"), *root.glob("test/**/test_*.py")]
    files = [content(one) for one in (*(root / name for name in SETTINGS), *tests[:20])]
    named = (root / "pytest.ini").is_file() or any(root.glob("**/conftest.py")) or any("pytest" in one for one in files)
    # plain functions, which unittest does not see
    if named or any(re.search(r"^(async )?def test_", one, re.MULTILINE) for one in files):
        return [PYTEST]
    return [UNITTEST] if tests else []


def javascript(root: Path) -> list[str]:
    """The package's test script, where it is not the placeholder that npm writes."""
    try:
        package = json.loads(content(root / "package.json") or "{}")
        script = str(package["scripts"]["test"])
    except (ValueError, KeyError, TypeError):
        return []
    return [] if "no test specified" in script else ["npm test"]


def content(path: Path) -> str:
    """A file's text, empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    except OSError:
        return ""
