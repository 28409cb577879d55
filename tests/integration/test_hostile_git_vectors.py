"""Thirty ways to make git run a program or write elsewhere, planted in a work tree and in a source.

Each names what a person would do to trip over it; that the trap works is checked with plain git first, so that a pass
here means something. Then everything the harness does is done with it, and the canary must not have appeared.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from agent_harness.delivery import deliver, landed, tip
from agent_harness.errors import HarnessError
from agent_harness.workspace import HarnessRepository
from agent_harness.workspace.source import locate
from fakes.repos import ENV, git, make, write


class Trap:
    """A repository, a program that leaves a canary, and places to name it in."""

    def __init__(self, top: Path, evil: Path) -> None:
        self.top, self.evil = top, evil

    def config(self, *lines: str) -> None:
        for line in lines:
            key, _, value = line.partition("=")
            git(self.top, "config", "--add", key, value.replace("EVIL", str(self.evil)))

    def hook(self, name: str) -> None:
        (self.top / ".git/hooks").mkdir(exist_ok=True)
        shutil.copy(self.evil, self.top / ".git/hooks" / name)

    def attributes(self, line: str) -> None:
        write(self.top, {".gitattributes": line.encode() + b"\n", "f.x": b"changed\n"})


def _worktree_config(trap):
    trap.config("extensions.worktreeConfig=true")
    (trap.top / ".git/config.worktree").write_text(f"[core]\n\tfsmonitor = {trap.evil}\n")


def _git_file(trap):
    trap.config("core.fsmonitor=EVIL")
    (trap.top / ".git").rename(trap.top / "made-up")
    (trap.top / ".git").write_text("gitdir: made-up\n")


def _commondir(trap):
    shutil.copytree(trap.top / ".git", trap.top / "common")
    git(trap.top / "common", "--git-dir=.", "config", "core.fsmonitor", str(trap.evil))
    (trap.top / ".git/commondir").write_text("../common\n")


def _include(trap):
    (trap.top / "inc").write_text(f"[core]\n\tfsmonitor = {trap.evil}\n")
    trap.config("include.path=../inc")


def _hooks_path(trap):
    (trap.top / "my-hooks").mkdir()
    shutil.copy(trap.evil, trap.top / "my-hooks/reference-transaction")
    trap.config(f"core.hooksPath={trap.top / 'my-hooks'}")


def _bare_inside(trap):
    git(trap.top, "init", "-q", "--bare", "sub")
    git(trap.top / "sub", "--git-dir=.", "config", "core.fsmonitor", str(trap.evil))
    git(trap.top / "sub", "--git-dir=.", "config", "core.bare", "false")
    git(trap.top / "sub", "--git-dir=.", "config", "core.worktree", "..")


def _nested(trap):
    make(trap.top / "nested", {"a": b"1"})
    git(trap.top / "nested", "config", "core.fsmonitor", str(trap.evil))
    git(trap.top, "-c", "advice.addEmbeddedRepo=false", "add", "nested")


def _submodule_update(trap):
    make(trap.top.parent / "lib", {"l": b"1"})
    git(trap.top, "submodule", "--quiet", "add", str(trap.top.parent / "lib"), "lib")
    trap.config("submodule.lib.update=!EVIL")


def _merge_driver(trap):
    make(trap.top, {".gitattributes": b"f.x merge=m\n", "f.x": b"1\n"})
    git(trap.top, "checkout", "-q", "-b", "other")
    make(trap.top, {"f.x": b"2\n"})
    git(trap.top, "checkout", "-q", "main")
    make(trap.top, {"f.x": b"3\n"})
    trap.config("merge.m.driver=EVIL")


def _signed(trap):
    raw = git(trap.top, "cat-file", "commit", "HEAD").replace(
        "\n\n", "\ngpgsig -----BEGIN PGP SIGNATURE-----\n x\n\n", 1
    )
    commit = git(trap.top, "hash-object", "-t", "commit", "-w", "--stdin", stdin=raw.encode())
    git(trap.top, "update-ref", "refs/heads/main", commit)
    trap.config("log.showSignature=true", "gpg.program=EVIL")


def _promisor(trap):
    """A partial clone: an object that is missing is fetched, by a program that the configuration names."""
    trap.config(
        "core.repositoryFormatVersion=1",
        "extensions.partialClone=origin",
        f"remote.origin.url={trap.top}",
        "remote.origin.promisor=true",
        "remote.origin.uploadpack=EVIL",
    )
    blob = git(trap.top, "rev-parse", "HEAD:f.x")
    (trap.top / ".git/objects" / blob[:2] / blob[2:]).unlink()


def _alternate_refs(trap):
    (trap.top / ".git/objects/info/alternates").write_text(str(trap.top.parent / "plain/.git/objects") + "\n")
    trap.config("core.alternateRefsCommand=EVIL", f"remote.origin.url={trap.top.parent / 'plain'}")


def conf(*lines):
    return lambda trap: trap.config(*lines)


def hook(name):
    return lambda trap: trap.hook(name)


def attr(line, *lines):
    return lambda trap: (trap.config(*lines), trap.attributes(line))


def remote(url, *lines):
    return conf(f"remote.origin.url={url}", "remote.origin.fetch=+refs/heads/*:refs/remotes/origin/*", *lines)


TRAPS = {
    "fsmonitor": (conf("core.fsmonitor=EVIL"), "git status"),
    "post-index-change": (hook("post-index-change"), "touch f.x; git status"),
    "pre-commit": (hook("pre-commit"), "git commit --allow-empty -m x"),
    "post-checkout": (hook("post-checkout"), "git checkout -b z"),
    "post-commit": (hook("post-commit"), "git commit --allow-empty -m x"),
    "reference-transaction": (hook("reference-transaction"), "git branch z"),
    "hooksPath": (_hooks_path, "git branch z"),
    "pre-receive": (hook("pre-receive"), "git push . HEAD:refs/heads/z"),
    "update": (hook("update"), "git push . HEAD:refs/heads/z"),
    "post-receive": (hook("post-receive"), "git push . HEAD:refs/heads/z"),
    "post-update": (hook("post-update"), "git push . HEAD:refs/heads/z"),
    "pre-push": (hook("pre-push"), "git push . HEAD:refs/heads/z"),
    "filter-clean": (attr("*.x filter=v", "filter.v.clean=EVIL"), "git add f.x"),
    "filter-smudge": (attr("*.x filter=v", "filter.v.smudge=EVIL"), "rm f.x; git checkout -- f.x"),
    "filter-process": (attr("*.x filter=v", "filter.v.process=EVIL", "filter.v.required=true"), "git add f.x"),
    "diff-external": (attr("*.y text", "diff.external=EVIL"), "git diff"),
    "diff-driver": (attr("*.x diff=d", "diff.d.command=EVIL"), "git diff"),
    "textconv": (attr("*.x diff=d", "diff.d.textconv=EVIL"), "git diff"),
    "merge-driver": (_merge_driver, "git merge other"),
    "gpg-program": (_signed, "git log -1"),
    "editor": (conf("core.editor=EVIL"), "git commit --allow-empty"),
    "ssh-command": (remote("ssh://h/x", "core.sshCommand=EVIL"), "git fetch"),
    "git-proxy": (remote("git://h/x", "core.gitProxy=EVIL"), "git fetch"),
    "ext": (remote("ext::EVIL", "protocol.ext.allow=always"), "git fetch"),
    "uploadpack": (remote(".", "remote.origin.uploadpack=EVIL"), "git fetch"),
    "credential-helper": (conf("credential.helper=EVIL"), "echo url=http://h | git credential fill"),
    "include": (_include, "git status"),
    "config-worktree": (_worktree_config, "git status"),
    "git-file": (_git_file, "git status"),
    "commondir": (_commondir, "git status"),
    "bare-inside": (_bare_inside, "cd sub; git status"),
    "nested": (_nested, "git status"),
    "submodule-update": (_submodule_update, "git submodule update --init --force"),
    "promisor": (_promisor, "git cat-file -p HEAD:f.x"),
    "alternate-refs": (_alternate_refs, "git fetch"),
    "alias": (conf("alias.st=!EVIL"), "git st"),
}


@pytest.fixture
def evil(tmp_path):
    program = tmp_path / "evil"
    program.write_text(f"#!/bin/sh\ntouch '{tmp_path}/CANARY'\n")
    program.chmod(0o755)
    return program


def canary(evil):
    return (evil.parent / "CANARY").exists()


@pytest.mark.parametrize("name", TRAPS)
def test_nothing_planted_runs(tmp_path, evil, name, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    plant, trip = TRAPS[name]
    make(tmp_path / "plain", {"f.x": b"1\n"})
    for copy in ("control", "tree", "source"):
        shutil.copytree(tmp_path / "plain", tmp_path / copy)
        plant(Trap(tmp_path / copy, evil))
        (tmp_path / "CANARY").unlink(missing_ok=True)  # some traps go off while they are laid
        shutil.rmtree(tmp_path / "lib", ignore_errors=True)
    shell = {**ENV, "GIT_PROTOCOL_FROM_USER": "1"}
    subprocess.run(
        ["bash", "-c", trip], cwd=tmp_path / "control", capture_output=True, check=False, env=shell, timeout=30
    )
    assert canary(evil), "the trap does not work"
    (tmp_path / "CANARY").unlink()
    _use(tmp_path, tmp_path / "plain", tmp_path / "tree")
    assert not canary(evil)
    try:
        _use(tmp_path, tmp_path / "source", tmp_path / "source")
    except HarnessError:
        assert name == "promisor"  # which cannot be read at all
    assert not canary(evil)


def _use(tmp_path, source, tree):
    """All the harness does with a source and a work tree."""
    ours = HarnessRepository.open(tmp_path / "ours.git")
    base = ours.fetch(str(source), "main")
    seen = ours.capture(base, tree, keep_as="refs/harness/work/i/1", message="m")
    ours.diff(base, seen.commit)
    ours.diff(base, seen.commit, "--binary")
    ours.read(seen.commit, "f.x", 100)
    out = tmp_path / f"out-{source.name}-{tree.name}"
    ours.materialise(seen.commit, out, uid=os.getuid(), gid=os.getgid())
    commit = ours.commit_tree(ours.tree_of(base), base, "delivered\n\nHarness-Item: i\n")
    deliver(ours, str(source), commit=commit, branch="harness/i", expected_old=None)
    assert tip(ours, locate(str(source)), "harness/i") == commit
    assert landed(ours, str(source), commit=commit, branch="harness/i")


def test_core_worktree_elsewhere_is_not_followed(tmp_path):
    """Git would look at, and write to, the folder that the planted configuration names."""
    make(tmp_path / "plain", {"f": b"1\n"})
    ours = HarnessRepository.open(tmp_path / "ours.git")
    base = ours.fetch(str(tmp_path / "plain"), "main")
    shutil.copytree(tmp_path / "plain", tmp_path / "tree")
    shutil.copytree(tmp_path / "plain", tmp_path / "elsewhere")
    git(tmp_path / "tree", "config", "core.worktree", str(tmp_path / "elsewhere"))
    write(tmp_path / "tree", {"f": b"2\n"})
    assert git(tmp_path / "tree", "status", "--porcelain") == ""
    seen = ours.capture(base, tmp_path / "tree", keep_as="refs/harness/work/i/1", message="m")
    assert [change.shown for change in seen.changes] == ["f"]


# --- ways to hide a change ----------------------------------------------------------------------------------------


def _same_stat(tree):
    git(tree, "config", "core.trustctime", "false")
    seen = (tree / "f").stat()
    (tree / "f").write_bytes(b"2\n")
    os.utime(tree / "f", ns=(seen.st_atime_ns, seen.st_mtime_ns))


def _filter(tree):
    git(tree, "config", "filter.v.clean", "printf '1\\n'")
    write(tree, {".git/info/attributes": b"f filter=v\n", "f": b"2\n"})


def _nested_repository(tree):
    git(tree / "src", "init", "-q")
    make(tree / "src", {"a.py": b"evil\n"})


def _fifo(tree):
    (tree / "f").unlink()
    os.mkfifo(tree / "f")


def run(*args):
    return lambda tree: (git(tree, *args), write(tree, {"f": b"2\n"}))


def plain(**files):
    return lambda tree: write(tree, {name.replace("__", "/"): data for name, data in files.items()})


def setting(line, files):
    return lambda tree: (git(tree, "config", *line.split("=", 1)), write(tree, files))


HIDING = {
    "assume-unchanged": run("update-index", "--assume-unchanged", "f"),
    "skip-worktree": run("update-index", "--skip-worktree", "f"),
    "info-exclude": lambda tree: write(tree, {".git/info/exclude": b"*\n", "new.py": b"1"}),
    "gitignore": lambda tree: write(tree, {".gitignore": b"*\n", "new.py": b"1"}),
    "gitignore-below": lambda tree: write(tree, {"src/.gitignore": b"*\n", "src/new.py": b"1"}),
    "excludes-file": setting("core.excludesFile=/dev/stdin", {"new.py": b"1"}),
    "minus-diff": lambda tree: write(tree, {".gitattributes": b"* -diff\n", "f": b"2\n"}),
    "nul-byte": lambda tree: write(tree, {"f": b"2\n\0"}),
    "same-stat": _same_stat,
    "nested-repository": _nested_repository,
    "clean-filter": _filter,
    "encoding": lambda tree: write(tree, {".gitattributes": b"f working-tree-encoding=UTF-16LE\n", "f": b"2\0\n\0"}),
    "sparse": run("sparse-checkout", "set", "--no-cone", "/src"),
    "untracked-no": setting("status.showUntrackedFiles=no", {"new.py": b"1"}),
    "crlf": setting("core.autocrlf=true", {"f": b"1\r\n"}),
    "file-mode": lambda tree: (git(tree, "config", "core.fileMode", "false"), (tree / "f").chmod(0o755)),
    "no-symlinks": lambda tree: (git(tree, "config", "core.symlinks", "false"), write(tree, {"ln": b"src/a.py"})),
    "fifo": _fifo,
    "ignore-case": setting("core.ignoreCase=true", {"F": b"2\n"}),
    "ident": lambda tree: write(tree, {".gitattributes": b"id ident\n", "id": b"$Id: evil $\n"}),
    "replace": lambda tree: git(tree, "replace", "HEAD:f", git(tree, "hash-object", "-w", "--stdin", stdin=b"2\n")),
    "index-away": lambda tree: (write(tree, {"f": b"2\n"}), (tree / ".git/index").unlink()),
}


EXPECTED = {
    "info-exclude": {"new.py"},
    "gitignore": {".gitignore", "new.py"},
    "gitignore-below": {"src/.gitignore", "src/new.py"},
    "excludes-file": {"new.py"},
    "minus-diff": {".gitattributes", "f"},
    "nested-repository": {"src/.git", "src/a.py"},
    "encoding": {".gitattributes", "f"},
    "untracked-no": {"new.py"},
    "no-symlinks": {"ln"},
    "ignore-case": {"F"},
    "ident": {".gitattributes", "id"},
    "sparse": {"f", "id", "ln"},
    "replace": set(),  # the tree is as it was, whatever its object database says
}


@pytest.mark.parametrize("name", HIDING)
def test_no_change_can_hide(tmp_path, name):
    make(tmp_path / "source", {"f": b"1\n", "src/a.py": b"1\n", "ln": "src/a.py", "id": b"$Id$\n"})
    ours = HarnessRepository.open(tmp_path / "ours.git")
    base = ours.fetch(str(tmp_path / "source"), "main")
    tree = tmp_path / "tree"
    ours.materialise(base, tree, uid=os.getuid(), gid=os.getgid())
    HIDING[name](tree)
    seen = ours.capture(base, tree, keep_as="refs/harness/work/i/1", message="m")
    refused = {refusal.path for refusal in seen.refusals}
    assert {change.shown for change in seen.changes} | refused == EXPECTED.get(name, {"f"})
    for change in seen.changes:
        path = tree / change.shown
        if change.new_mode != "000000" and not path.is_symlink():
            assert ours.read(seen.commit, change.shown, 1000) == path.read_bytes()
            assert ours.diff(base, seen.commit).count(path.read_bytes().splitlines()[0]) or change.binary
