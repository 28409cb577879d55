#!/usr/bin/env python3
"""Write requirements.txt and requirements-check.txt anew from pyproject.toml, hash-locked, for Python 3.11 and up.

The resolver (uv) goes into a throwaway environment; it asks the package index that it is configured for, and no index
address is written. requirements-check.txt holds only what comes on top of requirements.txt.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEAD = "# Locked by `make lock` from pyproject.toml; install with --no-deps --require-hashes. Do not edit.\n"


def resolve(uv: Path, out: Path, extras: list[str], limits: Path) -> dict[str, str]:
    """Each locked package's lines by its name."""
    words = [str(uv), "pip", "compile", "--universal", "--python-version", "3.11", "--generate-hashes"]
    words += ["--no-emit-index-url", "--no-annotate", "--no-header", "--quiet", "--upgrade"]
    words += ["--excludes", str(ROOT / "scripts" / "lock-left-out.txt"), "--constraints", str(limits)]
    for extra in extras:
        words += ["--extra", extra]
    subprocess.run([*words, str(ROOT / "pyproject.toml"), "--output-file", str(out)], check=True)
    blocks = re.split(r"^(?=[a-z0-9])", out.read_text(), flags=re.MULTILINE)
    return {block.split("==")[0]: block for block in blocks if "==" in block}


def main() -> int:
    """Lock both files."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        venv.create(home / "venv", with_pip=True)
        subprocess.run([str(home / "venv/bin/pip"), "install", "--quiet", "uv"], check=True)
        uv = home / "venv/bin/uv"
        runtime = resolve(uv, home / "runtime.txt", ["postgres", "test"], ROOT / "scripts" / "lock-limits.txt")
        everything = resolve(uv, home / "all.txt", ["postgres", "test", "check"], home / "runtime.txt")
    moved = sorted(name for name, block in runtime.items() if everything.get(name) != block)
    if moved:
        print(f"the check tools would move {', '.join(moved)}: nothing was written", file=sys.stderr)
        return 1
    (ROOT / "requirements.txt").write_text(HEAD + "".join(runtime.values()))
    on_top = [block for name, block in everything.items() if name not in runtime]
    (ROOT / "requirements-check.txt").write_text(HEAD + "".join(on_top))
    print(f"locked {len(runtime)} packages, and {len(on_top)} on top for the check tools")
    return 0


if __name__ == "__main__":
    sys.exit(main())
