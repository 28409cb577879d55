"""Real git repositories for tests, made with the plain git a user has."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ENV = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "LC_ALL": "C",
    **{f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in
       (("NAME", "A User"), ("EMAIL", "user@example.org"), ("DATE", "@1700000000 +0000"))},
}  # fmt: skip


def git(where, *args, stdin=b"", check=True, **more):
    """Plain git, as a person would run it in `where`; gives back its stdout, without the last newline."""
    safe = ("-c", "safe.directory=*", "-c", "protocol.file.allow=always")
    done = subprocess.run(
        ["git", *safe, *args], cwd=where, input=stdin, capture_output=True, env={**ENV, **more}, check=False
    )
    if check and done.returncode:
        raise AssertionError(f"git {args}: {done.stderr.decode('utf-8', 'replace')}")
    return done.stdout.decode("utf-8", "surrogateescape").rstrip("\n")


def write(top: Path, files) -> None:
    """Write files; a value of None deletes, a str is a link's target, bytes are contents."""
    for name, data in files.items():
        path = Path(os.fsdecode(os.fsencode(top) + b"/" + os.fsencode(name)))
        if path.is_symlink() or path.exists():
            path.unlink()
        if data is None:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(data) if isinstance(data, str) else path.write_bytes(data)


def make(top: Path, files, message="base") -> str:
    """A repository on branch main with one more commit that holds these files too; its id."""
    top.mkdir(parents=True, exist_ok=True)
    if not (top / ".git").exists():
        git(top, "init", "-q", "-b", "main")
    write(top, files)
    exact = Path(git(top, "rev-parse", "--path-format=absolute", "--git-path", "info/attributes"))
    exact.parent.mkdir(exist_ok=True)
    exact.write_text("* -text !filter !ident !working-tree-encoding\n")
    git(top, "add", "-A", "-f")
    exact.unlink()
    git(top, "commit", "-q", "--allow-empty", "-m", message)
    return git(top, "rev-parse", "HEAD")


def snapshot(top: Path) -> dict[bytes, tuple[str, bytes]]:
    """What a folder holds, `.git` left out: path to kind (file, program, link) and bytes."""
    found = {}
    base = os.fsencode(top)
    for folder, names, files in os.walk(base):
        if folder == base and b".git" in names:
            names.remove(b".git")
        for name in [*files, *(n for n in names if os.path.islink(folder + b"/" + n))]:
            path = folder + b"/" + name
            key = os.path.relpath(path, base)
            if os.path.islink(path):
                found[key] = ("link", os.readlink(path))
            else:
                with open(path, "rb") as file:
                    found[key] = ("program" if os.stat(path).st_mode & 0o100 else "file", file.read())
    return found
