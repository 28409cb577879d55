"""Fetch and delivery over real servers: git's own CGI over HTTP and HTTPS, and an sshd."""

import os
import shutil
from pathlib import Path

import pytest

from agent_harness.delivery import deliver, landed, tip
from agent_harness.errors import CredentialError, DeliveryRefused, Exit, GitFault, UsageError
from agent_harness.workspace import HarnessRepository
from agent_harness.workspace.source import locate
from fakes.git_servers import SSHD, GitHttp, Sshd, bare, certificate
from fakes.repos import git, make, snapshot, write

BRANCH = "harness/item-1"
SECRET = "hunter2-of-nobody"


class Far:
    """A bare repository behind a server, and ours beside it."""

    def __init__(self, top: Path, monkeypatch) -> None:
        self.top, self.env = top, monkeypatch
        self.source = top / "source"
        self.base = make(self.source, {"a": b"1\n", "b/c": b"2\n"})
        self.bare = bare(self.source, top / "far.git")
        self.ours = HarnessRepository.open(top / "state/ours.git")
        (top / "home").mkdir()
        self.env.setenv("HOME", str(top / "home"))
        self.url, self.server = "", None

    def config(self, text: str) -> None:
        (self.top / "home/.gitconfig").write_text(text)

    def fetch(self, ref="main"):
        return self.ours.fetch(self.url, ref)

    def commit(self, name: str) -> str:
        work = self.top / f"work-{name}"
        self.ours.materialise(self.base, work, uid=os.getuid(), gid=os.getgid(), with_git=False)
        write(work, {"made": name.encode()})
        return self.ours.capture(self.base, work, keep_as=f"refs/harness/work/{name}/1", message=name).commit

    def deliver(self, commit: str, old: str | None = None) -> None:
        deliver(self.ours, self.url, commit=commit, branch=BRANCH, expected_old=old)

    def at(self) -> str:
        return git(self.bare, "for-each-ref", "--format=%(objectname)", f"refs/heads/{BRANCH}")


def http(far, tls=None):
    far.server = GitHttp(far.top, tls=tls)
    far.url = f"{far.server.url}/far.git"
    return far.server


def https(far):
    if not shutil.which("openssl"):
        pytest.skip("openssl, which makes the certificate, is not there")
    cert, key = certificate(far.top)
    far.env.setenv("GIT_SSL_CAINFO", str(cert))
    return http(far, (cert, key))


def ssh(far):
    if not SSHD or (os.geteuid() == 0 and not Path("/run/sshd").is_dir()):
        pytest.skip("sshd is not there, or not set up to be started: /run/sshd is missing")
    (far.top / "sshd").mkdir()
    far.server = Sshd(far.top / "sshd")
    far.env.setenv("GIT_SSH_COMMAND", far.server.command())
    far.url = f"{far.server.url}{far.bare}"
    return far.server


WAYS = {"http": http, "https": https, "ssh": ssh}


@pytest.fixture
def away(tmp_path, monkeypatch):
    made = Far(tmp_path, monkeypatch)
    yield made
    if made.server:
        made.server.stop()


@pytest.fixture(params=WAYS)
def far(request, away):
    WAYS[request.param](away)
    return away


def test_a_delivery_lands_and_a_moved_branch_is_left_alone(far):
    assert far.fetch() == far.base
    one, two = far.commit("one"), far.commit("two")
    far.deliver(one)
    assert far.at() == one == tip(far.ours, locate(far.url), BRANCH)
    assert landed(far.ours, far.url, commit=one, branch=BRANCH)
    far.deliver(one)  # again, as after a crash
    with pytest.raises(DeliveryRefused, match="was not written"):
        far.deliver(two)
    far.deliver(two, one)
    theirs = git(far.bare, "commit-tree", f"{far.base}^{{tree}}", "-p", two, "-m", "theirs")
    git(far.bare, "update-ref", f"refs/heads/{BRANCH}", theirs)
    with pytest.raises(DeliveryRefused, match=theirs[:12]):
        far.deliver(one, two)
    assert far.at() == theirs
    assert far.ours.kept("refs/harness/work/one/1") == one
    assert git(far.bare, "rev-parse", "main") == far.base


def test_what_is_new_comes_and_what_is_not_there_is_said(far):
    far.fetch()
    make(far.source, {"new": b"3"})
    git(far.source, "push", "-q", str(far.bare), "main")
    newer = far.fetch()
    assert newer == git(far.source, "rev-parse", "main")
    far.ours.materialise(newer, far.top / "tree", uid=os.getuid(), gid=os.getgid(), with_git=False)
    assert snapshot(far.top / "tree") == snapshot(far.source)
    with pytest.raises(UsageError, match="did you mean main"):
        far.fetch("mian")
    far.url = far.url.replace("far.git", "nowhere.git")
    with pytest.raises(UsageError, match=r"cannot read .*nowhere.git"):
        far.fetch()


def test_a_server_that_is_gone_costs_nothing(far):
    far.fetch()
    commit = far.commit("one")
    far.server.stop()
    for step in far.fetch, lambda: far.deliver(commit):
        with pytest.raises(GitFault, match="cannot read") as caught:
            step()
        assert caught.value.exit is Exit.INCONCLUSIVE
    assert far.ours.kept("refs/harness/work/one/1") == commit
    far.server = None


@pytest.mark.parametrize("way", ["http", "https"])
def test_a_server_gone_in_the_middle_is_inconclusive(away, way):
    server = WAYS[way](away)
    server.cut = "git-upload-pack"
    with pytest.raises(GitFault, match="Next: ") as caught:
        away.fetch()
    assert caught.value.exit is Exit.INCONCLUSIVE
    assert away.ours.git.run("for-each-ref") == b""
    server.cut = ""
    away.fetch()
    commit = away.commit("one")
    server.cut = "git-receive-pack"
    with pytest.raises(GitFault, match=r"was not written.*run again") as caught:
        away.deliver(commit)
    assert caught.value.exit is Exit.INCONCLUSIVE
    assert away.at() == ""
    server.cut = ""
    away.deliver(commit)
    assert away.at() == commit


@pytest.mark.parametrize("way", ["http", "https"])
def test_credentials_come_from_the_users_own_helper(away, way):
    server = WAYS[way](away)
    server.user, server.password = "somebody", SECRET
    helper = away.top / "helper"
    away.config(f"[credential]\n\thelper = {helper}\n")
    helper.write_text(f"#!/bin/sh\n[ $1 = get ] && printf 'username=somebody\\npassword={SECRET}\\n'\n")
    helper.chmod(0o755)
    assert away.fetch() == away.base
    commit = away.commit("one")
    away.deliver(commit)
    assert away.at() == commit


@pytest.mark.parametrize("given", ["", f"somebody:not-{SECRET}@", f"some%40body:{SECRET}%40x@", "token@"])
def test_wrong_credentials_are_one_clear_line_without_them(away, given, capfd):
    server = http(away)
    away.fetch()
    commit = away.commit("one")
    server.user, server.password = "somebody", SECRET
    away.url = away.url.replace("://", f"://{given}")
    for step in away.fetch, lambda: away.deliver(commit):
        with pytest.raises(CredentialError) as caught:
            step()
        assert caught.value.exit is Exit.CREDENTIALS
        assert SECRET not in caught.value.line
        assert "token" not in caught.value.what + caught.value.why
        assert "Next: " in caught.value.line
        assert "\n" not in caught.value.line
    assert "".join(capfd.readouterr()) == ""
    assert away.at() == ""


def test_a_secret_that_is_no_part_of_a_url_is_not_shown_either(away):
    away.url = f"https://somebody:{SECRET[:5]}@{SECRET[5:]}@127.0.0.1:9/far.git"
    with pytest.raises(GitFault) as caught:
        away.fetch()
    assert SECRET[:5] not in caught.value.line
    assert SECRET[5:] not in caught.value.line


def test_a_key_that_is_not_allowed_and_a_host_that_is_not_known(away):
    server = ssh(away)
    away.env.setenv("GIT_SSH_COMMAND", server.command("stranger"))
    with pytest.raises(CredentialError, match=r"Permission denied \(publickey\)"):
        away.fetch()
    away.env.setenv("GIT_SSH_COMMAND", server.command(known="nobody"))
    with pytest.raises(GitFault, match=r"Host key verification failed.*known_hosts"):
        away.fetch()
    assert "PRIVATE KEY" not in server.said()


def test_a_certificate_that_nobody_vouches_for(away):
    https(away)
    away.env.delenv("GIT_SSL_CAINFO")
    with pytest.raises(GitFault, match=r"certificate.*GIT_SSL_CAINFO"):
        away.fetch()
    away.config(f"[http]\n\tsslCAInfo = {away.top / 'cert.pem'}\n")
    assert away.fetch() == away.base
    away.config("")
    away.env.setenv("GIT_CONFIG_COUNT", "1")
    away.env.setenv("GIT_CONFIG_KEY_0", "http.sslCAInfo")
    away.env.setenv("GIT_CONFIG_VALUE_0", str(away.top / "cert.pem"))
    assert away.fetch() == away.base


def test_a_push_that_may_not_be_is_refused_by_name(far):
    far.fetch()
    commit = far.commit("one")
    hook = far.bare / "hooks/update"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    with pytest.raises(DeliveryRefused, match="hook declined"):
        far.deliver(commit)
    assert far.at() == ""


def test_submodules_and_pointers_over_the_wire(far):
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"
    make(far.source, {"big.bin": pointer, ".gitattributes": b"*.bin filter=lfs diff=lfs merge=lfs -text\n"})
    git(far.source, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},module")
    git(far.source, "commit", "-qm", "module")
    git(far.source, "push", "-q", str(far.bare), "main")
    seen = far.ours.materialise(far.fetch(), far.top / "tree", uid=os.getuid(), gid=os.getgid())
    assert (seen.submodules, seen.pointers) == (("module",), ("big.bin",))
    assert (far.top / "tree/big.bin").read_bytes() == pointer
    assert list((far.top / "tree/module").iterdir()) == []
