"""What `doctor` tries. Imported by it alone, and late: the help of the other commands does not wait for it."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from agent_harness.app import App
from agent_harness.cli.opening import configured, need_repository
from agent_harness.cli.output import line
from agent_harness.config import Config, Loaded, check_ready
from agent_harness.errors import ConfigError, HarnessError, UsageError
from agent_harness.models.client import Route
from agent_harness.models.pricing import PriceTable
from agent_harness.models.routes import Rate
from agent_harness.ports import Finding
from agent_harness.workspace.source import locate, resolve

GIT_LEAST = (2, 34)
SPACE_LEAST = 1 << 30


def shown(findings: list[Finding]) -> str:
    """Findings for people, the remedy below each that does not hold or is to be weighed."""
    width = max(len(one.name) for one in findings)
    lines = []
    for one in findings:
        mark = "FAIL" if not one.ok else "warn" if one.fix else "ok  "
        lines.append(f"{mark}  {one.name:<{width}}  {line(one.seen)}")
        if one.fix:
            lines.append(f"      -> {line(one.fix)}")
    return "\n".join(lines)


def failed(name: str, error: HarnessError) -> Finding:
    """An error as a finding."""
    return Finding(name, ok=False, seen=error.told, fix=error.next)


def configuration(sets: list[str] | None, db: str | None) -> tuple[Loaded | None, Finding]:
    """The configuration, None where it cannot be loaded, and a finding on it."""
    try:
        loaded = configured(sets, db)
    except ConfigError as error:
        return None, failed("configuration", error)
    file = str(loaded.file) if loaded.file else "no file: defaults"
    return loaded, Finding("configuration", ok=True, seen=f"{file}, {loaded.config.digest[:19]}")


def git() -> Finding:
    """The git on the path, and whether it is new enough."""
    try:
        done = subprocess.run(["git", "version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return Finding("git", ok=False, seen=f"not usable ({type(error).__name__})", fix="install git")
    text = done.stdout.decode("utf-8", "replace").strip()
    ok = tuple(map(int, re.findall(r"\d+", text)[:2])) >= GIT_LEAST
    return Finding("git", ok=ok, seen=text, fix="" if ok else "install git {}.{} or newer".format(*GIT_LEAST))


def project(loaded: Loaded) -> Iterator[Finding]:
    """The repository, its checks, and the state folder."""
    source = loaded.config.source(loaded.root)
    try:
        need_repository(source)
        if Path(source).is_absolute():  # a URL is asked when it is fetched
            resolve(locate(source), loaded.config.project.base)
        yield Finding("repository", ok=True, seen=loaded.config.project.source)
    except HarnessError as error:
        yield failed("repository", error)
    count = len(loaded.config.project.checks)
    fix = 'set project.checks in harness.toml, such as ["python3 -m pytest -q"], or give --check with each item'
    yield Finding("checks", ok=bool(count), seen=f"{count} configured", fix="" if count else fix)
    yield space(loaded.config.state_dir(loaded.root))


def space(folder: Path) -> Finding:
    """Whether the state folder, or the nearest folder above it that exists, can be written and has room."""
    there = next(one for one in (folder, *folder.parents) if one.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        return Finding("state", ok=False, seen=f"{there} cannot be written", fix="change its owner, or set state.dir")
    free = shutil.disk_usage(there).free
    fix = "" if free >= SPACE_LEAST else "make room, or set state.dir"
    return Finding("state", ok=not fix, seen=f"{folder}, {free >> 20} MiB free", fix=fix)


def routes(config: Config) -> Iterator[Finding]:
    """Each role's routes, that their keys are there and their prices known. Keys are never shown."""
    prices = PriceTable.load()
    for role in ("implementer", "reviewer") if config.review.enabled else ("implementer",):
        try:
            check_ready(config, role)
            for name in config.routes_of(role):
                Rate.of(Route.configured(name, config.routes[name]), prices)
        except HarnessError as error:
            yield failed(f"routes of {role}", error)
            continue
        keys = {name: config.routes[name].api_key_env for name in config.routes_of(role)}
        seen = ", ".join(f"{name} (key in {key})" if key else f"{name} (no key)" for name, key in keys.items())
        yield Finding(f"routes of {role}", ok=True, seen=seen)


def sandbox(loaded: Loaded, *, fix: bool) -> list[Finding]:
    """The engine, the image, and every property of the sandbox; `fix` builds the image first.

    Where there is no repository, no state folder is left behind."""
    with tempfile.TemporaryDirectory() as nowhere:
        root = loaded.root
        try:
            need_repository(loaded.config.source(root))
        except UsageError:
            root = Path(nowhere)
        try:
            with App(loaded.config, root) as app:
                return app.doctor(fix)
        except HarnessError as error:
            return [failed("sandbox", error)]
