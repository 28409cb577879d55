"""An interpreter for images without Python: this machine's own, with nothing but what the exec server loads.

Its loader is called by name, with its own libraries beside it: the image's C library, if any, does not matter. What is
shown inside is a folder of the run, as a mount that `policy` compares and proves like every other.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from agent_harness.errors import SandboxUnavailable
from agent_harness_sandbox import policy
from agent_harness_sandbox.image import cache, said

_LIST = """import sys
for text in sys.argv[1:]:
    exec(compile(text, "", "exec"), {"__name__": ""})
for one in list(sys.modules.values()):
    print(getattr(one, "__file__", None), getattr(one, "__cached__", None), sep="\\n")"""


def lend(beside: Path) -> Path:
    """A new folder in `beside`, to be mounted at `policy.LENT`, and to be removed with `beside` at the latest. Its
    files are links to the same few of the cache where they can be: two hundred cost the room and the memory of one."""
    folder = tempfile.mkdtemp(prefix="python-", dir=beside)
    return Path(shutil.copytree(_kept(), folder, copy_function=_link, dirs_exist_ok=True))


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or as many links as it takes
        shutil.copy2(source, target)


def _kept() -> Path:
    """All of it in the user's cache, named by what it was taken from."""
    parts = _parts()
    about = [(to, source, (found := Path(source).stat()).st_size, found.st_mtime_ns) for to, source in parts.items()]
    kept = cache() / f"python-{hashlib.sha256(repr(about).encode()).hexdigest()[:16]}"
    if not kept.exists():
        made = Path(tempfile.mkdtemp(dir=kept.parent))
        for to, source in parts.items():
            (made / to).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, made / to)
        for path in (made, *made.rglob("*")):
            path.chmod(0o755)
        try:
            made.rename(kept)
        except OSError:  # another process was quicker
            shutil.rmtree(made)
    return kept


@functools.cache
def _parts() -> dict[str, str]:
    """What is needed, by its place in the folder: program, loader, libraries, and the modules that are imported."""
    python = str(getattr(sys, "_base_executable", sys.executable))
    named = said(python, "-I", "-S", "-c", _LIST, policy.execd().decode(), policy.relay_text().decode(), check=True)
    modules = [one for one in named.splitlines() if os.path.isfile(one)]  # noqa: PTH113
    parts = {os.path.relpath(one, sys.base_prefix): one for one in modules} | {"bin/python3": python}
    for name, path in re.findall(
        r"(?:(\S+) => )?(/\S+) \(0x", said("ldd", python, *(one for one in modules if one.endswith(".so")))
    ):
        parts["loader" if not name else f"libraries/{name}"] = path
    if "loader" not in parts:
        raise SandboxUnavailable(f"{python} has no loader that could be shown to an image without Python")
    return parts
