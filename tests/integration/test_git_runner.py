import os
import time

import pytest

from agent_harness.errors import GitFault
from agent_harness.git import Done, Git, blobs
from fakes.repos import git, make


@pytest.fixture(scope="module")
def repo(tmp_path_factory):
    top = tmp_path_factory.mktemp("runner") / "r"
    make(top, {"a": b"one\n", "big": b"x" * (3 << 20)})
    return top


def test_nothing_of_the_callers_environment_gets_in(repo, monkeypatch):
    for name in ("GIT_CONFIG_PARAMETERS", "GIT_EXTERNAL_DIFF", "GIT_DIR", "GIT_SSH_COMMAND", "HARNESS_KEY"):
        monkeypatch.setenv(name, "secret")
    env = Git(repo / ".git")._environment()
    assert "secret" not in env.values()
    assert env["HOME"] == "/nonexistent"
    assert env["GIT_ALLOW_PROTOCOL"] == "none"


def test_only_the_network_sees_the_users_credentials(repo, monkeypatch):
    monkeypatch.setenv("SSH_AUTH_SOCK", "/agent")
    monkeypatch.setenv("HARNESS_KEY", "secret")
    assert "SSH_AUTH_SOCK" not in Git(repo / ".git")._environment()
    env = Git(repo / ".git", network=True)._environment()
    assert env["SSH_AUTH_SOCK"] == "/agent"
    assert "ext" not in env["GIT_ALLOW_PROTOCOL"].split(":")
    assert "secret" not in env.values()


def test_a_late_git_is_ended_with_its_children(repo, tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    began = time.monotonic()
    with pytest.raises(GitFault, match=r"hash-object was stopped: it did not end within"):
        Git(repo / ".git").run("-c", "core.fsync=none", "hash-object", str(fifo), timeout_s=0.3)
    assert time.monotonic() - began < 5


def test_a_late_stream_is_ended(repo, tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with (
        pytest.raises(GitFault, match="was stopped"),
        Git(repo / ".git").stream("hash-object", str(fifo), stdin=b"", timeout_s=0.3) as out,
    ):
        out.read()


def test_blobs_come_in_order_and_may_be_skipped(repo):
    a, big = git(repo, "rev-parse", "HEAD:a"), git(repo, "rev-parse", "HEAD:big")
    read = blobs(Git(repo / ".git"), [big, a, big])
    next(next(read))  # one chunk of the first, the rest left
    assert b"".join(next(read)) == b"one\n"
    assert sum(map(len, next(read))) == 3 << 20
    assert next(read, None) is None
    assert list(blobs(Git(repo / ".git"), [])) == []


def test_an_object_that_is_no_file_is_a_fault(repo):
    with pytest.raises(GitFault, match="cannot be read"):
        list(blobs(Git(repo / ".git"), [git(repo, "rev-parse", "HEAD")]))


def test_a_missing_object_is_a_fault(repo):
    with pytest.raises(GitFault, match="cannot be read"):
        list(blobs(Git(repo / ".git"), ["0" * 40]))


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"fatal: unable to write loose object: No space left on device\n", "the disk is full"),
        (
            b"error: insufficient permission for adding an object to repository database\nfatal: x\n",
            "permission denied",
        ),
        (b"fatal: Unable to create '/r/a.lock': File exists.\n\nAnother git process\n", "holds a lock"),
        (b"warning: w\nfatal: odd\nhint: h\n", "git gc failed: odd"),
        (b"", "exit code 128"),
        (b"fatal: unknown repository extension found:\n\n\treftable\n", "extension found: reftable"),
    ],
)
def test_a_fault_says_why_in_one_line(said, words):
    line = Done(("-c", "a=b", "gc"), 128, b"", said).fault().line
    assert words in line
    assert "\n" not in line


def test_no_git_is_said_plainly(repo, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(GitFault, match="git was not found"):
        Git(repo / ".git").run("version")


def test_a_pipe_says_which_end_failed(repo):
    ours = Git(repo / ".git")
    with pytest.raises(GitFault, match="git pack-objects failed"):
        ours.pipe(("pack-objects", "--revs", "--stdout", "-q"), b"0" * 40 + b"\n", ours, ("index-pack", "--stdin"))
    head = git(repo, "rev-parse", "HEAD").encode() + b"\n"
    with pytest.raises(GitFault, match="git no-such-verb failed"):
        ours.pipe(("pack-objects", "--revs", "--stdout", "-q"), head, ours, ("no-such-verb",))


def test_a_child_that_left_the_group_and_holds_the_streams_is_not_waited_for(repo):
    """As a connection does that ssh keeps open for the next one."""
    began = time.monotonic()
    with pytest.raises(GitFault, match="was stopped: it did not end within 1 s"):
        Git(repo / ".git").attempt("-c", "alias.leave=!setsid sleep 20 &", "leave", timeout_s=1)
    assert time.monotonic() - began < 15
