import os
import tempfile
import threading
from pathlib import Path

import pytest

from agent_harness.delivery import deliver, landed, message, tip
from agent_harness.errors import DeliveryRefused, GitFault, UsageError
from agent_harness.workspace import HarnessRepository
from agent_harness.workspace.source import locate
from fakes.repos import git, make, snapshot, write

BRANCH = "harness/item-1"


class Desk:
    """A source with a base, our repository, and commits to deliver."""

    def __init__(self, top: Path) -> None:
        self.top, self.source = top, top / "source"
        make(self.source, {"a": b"1\n", "b/c": b"2\n"})
        self.ours = HarnessRepository.open(top / "state/ours.git")
        self.base = self.ours.fetch(str(self.source), "main")
        self.to = str(self.source)

    def commit(self, name: str, parent: str = "") -> str:
        """A new commit in our repository only."""
        work = self.top / f"work-{name}"
        self.ours.materialise(parent or self.base, work, uid=0, gid=0, with_git=False)
        write(work, {"made": name.encode()})
        seen = self.ours.capture(parent or self.base, work, keep_as=f"refs/harness/work/{name}/1", message=name)
        text = message(name, {"Harness-Item": name})
        return self.ours.commit_tree(seen.tree, parent or self.base, text)

    def deliver(self, commit: str, old: str | None = None, branch: str = BRANCH) -> None:
        deliver(self.ours, self.to, commit=commit, branch=branch, expected_old=old)

    def tip(self, branch: str = BRANCH) -> str | None:
        return tip(self.ours, locate(self.to), branch)


def state_of(source: Path) -> tuple[object, ...]:
    """All a person would notice: files, index, HEAD, and every branch but ours."""
    refs = git(source, "for-each-ref", "--format=%(refname) %(objectname)")
    kept = [line for line in refs.splitlines() if "/harness/" not in line]
    index = (source / ".git/index").read_bytes()
    return snapshot(source), index, (source / ".git/HEAD").read_bytes(), kept, git(source, "reflog")


@pytest.fixture(params=["path", "url"])
def desk(request, tmp_path, monkeypatch):
    made = Desk(tmp_path)
    if request.param == "url":
        ssh = tmp_path / "ssh"
        ssh.write_text('#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n')
        ssh.chmod(0o755)
        monkeypatch.setenv("GIT_SSH_COMMAND", str(ssh))
        monkeypatch.setenv("HOME", str(tmp_path))
        made.to = f"ssh://host{made.source}"
    return made


@pytest.fixture
def local(tmp_path):
    return Desk(tmp_path)


def test_a_delivery_is_one_branch_and_nothing_else(desk):
    write(desk.source, {"a": b"dirty\n", "untracked": b"x"})
    git(desk.source, "add", "untracked")
    before = state_of(desk.source)
    commit = desk.commit("one")
    assert desk.tip() is None
    desk.deliver(commit)
    assert desk.tip() == commit
    assert state_of(desk.source) == before
    assert git(desk.source, "show", f"{BRANCH}:made") == "one"
    assert git(desk.source, "fsck", "--connectivity-only") == ""


def test_it_may_be_repeated(desk):
    commit = desk.commit("one")
    desk.deliver(commit)
    desk.deliver(commit)
    desk.deliver(commit, old=desk.base)
    assert desk.tip() == commit


def test_a_known_old_tip_is_replaced(desk):
    one, two = desk.commit("one"), desk.commit("two")
    desk.deliver(one)
    desk.deliver(two, old=one)
    assert desk.tip() == two


def test_a_branch_that_somebody_moved_is_left_alone(desk):
    one, two = desk.commit("one"), desk.commit("two")
    desk.deliver(one)
    theirs = git(desk.source, "commit-tree", "HEAD^{tree}", "-p", one, stdin=b"my own work")
    git(desk.source, "update-ref", f"refs/heads/{BRANCH}", theirs)
    with pytest.raises(DeliveryRefused, match=rf"it is at {theirs[:12]}.*was built on {one[:12]}"):
        desk.deliver(two, old=one)
    with pytest.raises(DeliveryRefused, match="expected no such branch"):
        desk.deliver(two)
    assert desk.tip() == theirs
    git(desk.source, "update-ref", "-d", f"refs/heads/{BRANCH}")
    with pytest.raises(DeliveryRefused, match="it is gone"):
        desk.deliver(two, old=one)
    assert desk.ours.git.line("cat-file", "-t", two) == "commit"


def test_who_is_there_is_told(local):
    theirs = git(local.source, "commit-tree", "HEAD^{tree}", "-p", "HEAD", stdin=b"my own work\n\nmore")
    git(local.source, "update-ref", f"refs/heads/{BRANCH}", theirs)
    with pytest.raises(DeliveryRefused, match="by A User: my own work;"):
        local.deliver(local.commit("one"))


def test_two_at_once_land_once(desk):
    commits = [desk.commit(str(number)) for number in range(4)]
    ends: list[object] = []

    def one(commit):
        try:
            desk.deliver(commit)
            ends.append(commit)
        except (DeliveryRefused, GitFault) as error:
            ends.append(error)

    threads = [threading.Thread(target=one, args=(commit,)) for commit in commits]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    landed = [end for end in ends if isinstance(end, str)]
    assert landed == [desk.tip()]


def test_the_same_commit_at_once_lands_for_all(local):
    commit = local.commit("one")
    ends: list[object] = []

    def one():
        try:
            local.deliver(commit)
            ends.append("landed")
        except (DeliveryRefused, GitFault) as error:
            ends.append(error)

    threads = [threading.Thread(target=one) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not [end for end in ends if isinstance(end, DeliveryRefused)]
    assert local.tip() == commit


@pytest.mark.parametrize("where", ["checkout", "worktree"])
def test_a_checked_out_branch_is_left_alone(local, where):
    git(local.source, "branch", BRANCH)
    if where == "checkout":
        git(local.source, "checkout", "-q", BRANCH)
    else:
        git(local.source, "worktree", "add", "-q", str(local.top / "wt"), BRANCH)
    with pytest.raises(DeliveryRefused, match="is checked out in"):
        local.deliver(local.commit("one"), old=local.base)
    assert local.tip() == local.base


@pytest.mark.parametrize(("there", "wanted"), [("harness", "harness/x"), ("harness/x/y", "harness/x")])
def test_a_branch_in_the_way(desk, there, wanted):
    git(desk.source, "branch", there)
    words = f"branch {there}" if not desk.to.startswith("ssh") else "was not written"
    with pytest.raises(DeliveryRefused, match=words):
        desk.deliver(desk.commit("one"), branch=wanted)


@pytest.mark.parametrize("branch", ["-x", "a..b", "a b", "x.lock", "", "a/", "@{1}"])
def test_names_that_no_branch_can_have(local, branch):
    with pytest.raises(UsageError, match="cannot be the name of a branch"):
        local.deliver(local.base, branch=branch)


def test_a_branch_that_is_a_symbolic_ref_does_not_move_its_target(local):
    git(local.source, "symbolic-ref", f"refs/heads/{BRANCH}", "refs/heads/main")
    local.deliver(local.commit("one"), old=local.base)
    assert git(local.source, "rev-parse", "main") == local.base


def test_a_locked_branch_is_a_fault_and_loses_nothing(local):
    commit = local.commit("one")
    lock = local.source / ".git/refs/heads" / f"{BRANCH}.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    with pytest.raises(GitFault, match="another git process holds a lock"):
        local.deliver(commit)
    assert local.tip() is None
    lock.unlink()
    local.deliver(commit)
    assert local.tip() == commit


@pytest.mark.parametrize("said", ["garbage\n", "1" * 40 + "\n", ""])
def test_a_branch_that_leads_nowhere_stands_in_nobodys_way(local, said):
    commit = local.commit("one")
    (local.source / ".git/refs/heads/broken").write_text(said)
    local.deliver(commit)
    assert local.tip() == commit


def test_a_commit_that_is_not_whole_is_not_delivered(local):
    made = git(local.source, "commit-tree", "HEAD^{tree}", "-p", "HEAD", stdin=b"m")
    git(local.source, "update-ref", "refs/heads/theirs", made)
    commit = local.commit("one", parent=local.ours.fetch(local.to, "theirs"))
    (local.source / ".git/objects" / made[:2] / made[2:]).unlink()
    local.deliver(commit)  # what is missing comes along
    assert git(local.source, "cat-file", "-t", made) == "commit"


def test_bare_and_worktree_sources(local):
    git(local.top, "clone", "-q", "--bare", str(local.source), "bare.git")
    git(local.source, "worktree", "add", "-q", str(local.top / "wt"), "-b", "side")
    one = local.commit("one")
    for to in ("bare.git", "wt"):
        deliver(local.ours, str(local.top / to), commit=one, branch=BRANCH, expected_old=None)
        assert git(local.top / to, "rev-parse", BRANCH) == one
    deliver(local.ours, str(local.top / "bare.git"), commit=one, branch="other", expected_old=None)
    assert git(local.top / "bare.git", "rev-parse", "main") == local.base


def test_objects_the_source_lost_are_sent_too(local):
    """The base's branch was deleted and collected in the source meanwhile: it is complete again afterwards."""
    git(local.source, "checkout", "-q", "-b", "gone")
    base = make(local.source, {"late": b"1"})
    local.ours.fetch(str(local.source), "gone")
    commit = local.commit("one", parent=base)
    git(local.source, "checkout", "-q", "main")
    git(local.source, "branch", "-D", "gone")
    git(local.source, "reflog", "expire", "--expire=now", "--all")
    git(local.source, "gc", "-q", "--prune=now")
    assert git(local.source, "cat-file", "-t", base, check=False) == ""
    local.deliver(commit)
    assert git(local.source, "fsck") == ""
    assert git(local.source, "show", f"{BRANCH}:late") == "1"


def test_a_shallow_source_gets_its_delivery(local):
    make(local.source, {"x": b"1"})
    git(local.top, "clone", "-q", "--depth=1", local.source.as_uri(), "shallow")
    to = str(local.top / "shallow")
    base = local.ours.fetch(to, "main")
    commit = local.commit("one", parent=base)
    deliver(local.ours, to, commit=commit, branch=BRANCH, expected_old=None)
    assert git(local.top / "shallow", "fsck", "--connectivity-only") == ""
    assert git(local.top / "shallow", "show", f"{BRANCH}:made") == "one"


def test_a_delivered_commit_is_known_whatever_became_of_its_branch(desk):
    one, other = desk.commit("one"), desk.commit("other")
    assert not landed(desk.ours, desk.to, commit=one, branch=BRANCH)
    desk.deliver(one)
    assert landed(desk.ours, desk.to, commit=one, branch=BRANCH)
    assert not landed(desk.ours, desk.to, commit=other, branch=BRANCH)
    if desk.to.startswith("ssh"):
        return
    git(desk.source, "branch", "-m", BRANCH, "renamed")
    desk.deliver(desk.commit("more", parent=one), branch="renamed", old=one)
    assert landed(desk.ours, desk.to, commit=one, branch=BRANCH)
    git(desk.source, "branch", "-D", "renamed")
    assert not landed(desk.ours, desk.to, commit=one, branch=BRANCH)


def test_a_remote_that_declines_is_said(desk):
    if not desk.to.startswith("ssh"):
        pytest.skip("hooks of a source on this machine do not run")
    hook = desk.source / ".git/hooks/pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    with pytest.raises(DeliveryRefused, match="pre-receive hook declined"):
        desk.deliver(desk.commit("one"))


def test_a_remote_that_is_gone_is_said(desk):
    if not desk.to.startswith("ssh"):
        pytest.skip("for URLs")
    commit = desk.commit("one")
    desk.source.rename(desk.top / "moved")
    with pytest.raises(UsageError, match="cannot read ssh://host"):
        desk.deliver(commit)


# --- owners and permissions -------------------------------------------------------------------------------------

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root acts for other users")


@pytest.fixture
def theirs():
    """A desk in a folder that everybody can reach, whose source belongs to user 1000."""
    with tempfile.TemporaryDirectory() as held:
        os.chmod(held, 0o755)
        desk = Desk(Path(held))
        for path in (desk.source, *desk.source.rglob("*")):
            os.lchown(path, 1000, 1000)
        yield desk


@needs_root
def test_root_leaves_nothing_of_its_own_in_somebody_elses_repository(theirs):
    theirs.deliver(theirs.commit("one"))
    owners = {path: path.lstat().st_uid for path in (theirs.source, *theirs.source.rglob("*"))}
    assert set(owners.values()) == {1000}


@needs_root
def test_a_repository_its_owner_cannot_write_is_a_fault(theirs):
    commit = theirs.commit("one")
    for folder in [theirs.source / ".git/objects", *(theirs.source / ".git/objects").iterdir()]:
        os.chown(folder, 0, 0)
        folder.chmod(0o555)
    with pytest.raises(GitFault, match="permission denied"):
        theirs.deliver(commit)
    assert theirs.tip() is None
    assert theirs.ours.git.line("cat-file", "-t", commit) == "commit"


@needs_root
def test_a_planted_link_does_not_make_root_write_elsewhere(theirs, tmp_path):
    commit = theirs.commit("one")
    (tmp_path / "roots").mkdir()
    heads = theirs.source / ".git/refs/heads/harness"
    heads.symlink_to(tmp_path / "roots")
    with pytest.raises((GitFault, DeliveryRefused)):
        theirs.deliver(commit)
    assert list((tmp_path / "roots").iterdir()) == []


@needs_root
def test_an_owner_who_closes_a_folder_does_not_make_root_write_elsewhere(theirs, tmp_path):
    """Root is not to act as itself because the owner shut a folder that the owner can open again at any time."""
    top = theirs.top / "closed"
    top.mkdir()
    theirs.source.rename(top / "source")
    theirs.source, theirs.to = top / "source", str(top / "source")
    commit = theirs.commit("one")
    (tmp_path / "roots").mkdir()
    (theirs.source / ".git/refs/heads/harness").symlink_to(tmp_path / "roots")
    os.chown(top, 1000, 1000)
    top.chmod(0o600)
    with pytest.raises((GitFault, DeliveryRefused, UsageError)):
        theirs.deliver(commit)
    assert list((tmp_path / "roots").iterdir()) == []


@needs_root
def test_a_full_disk_is_said_and_loses_nothing(tmp_path):
    """A real small file system; skipped where root may not mount."""
    small = tmp_path / "small"
    small.mkdir()
    if os.system(f"mount -t tmpfs -o size=1m tmpfs '{small}' 2>/dev/null") != 0:
        pytest.skip("mounting is not allowed here")
    try:
        desk = Desk(tmp_path)
        git(tmp_path, "clone", "-q", "--bare", str(desk.source), str(small / "s.git"))
        work = tmp_path / "w"
        desk.ours.materialise(desk.base, work, uid=0, gid=0, with_git=False)
        write(work, {"big": os.urandom(3 << 20)})
        seen = desk.ours.capture(desk.base, work, keep_as="refs/harness/work/big/1", message="m")
        with pytest.raises(GitFault, match="the disk is full"):
            deliver(desk.ours, str(small / "s.git"), commit=seen.commit, branch=BRANCH, expected_old=None)
        assert tip(desk.ours, locate(str(small / "s.git")), BRANCH) is None
        assert desk.ours.kept("refs/harness/work/big/1") == seen.commit
    finally:
        os.system(f"umount '{small}'")
