"""Images made from what a base commit holds: built, set up once, and kept under the digest of all that went in.

Nothing a candidate wrote comes near: `tree` is the harness's own checkout of the base. Whatever is built here runs
later under the same profile as every other image.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
import shlex
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_harness.errors import Cancelled, ConfigError, SandboxUnavailable
from agent_harness.types import ImagePlan, Mount
from agent_harness_sandbox import devcontainer, policy
from agent_harness_sandbox.egress import Egress
from agent_harness_sandbox.image import clear, once, used
from agent_harness_sandbox.owner import LABEL
from agent_harness_sandbox.surroundings import Find, confined

BUILT, SET_UP = "agent-harness-build", "agent-harness-setup"
PROJECT = "agent-harness.project"
KEPT = 3
"""Of a project's made images, so many stay in any case."""
PULL_S = 1800.0
LOOK_S = 0.5
MEMORY, PIDS = 4 << 30, 2048
_SCRIPT = r"""set -e
end() {
    find /workspace -mindepth 1 -delete
    [ ! -e /cache ] || { chown -Rh %(owner)s /cache; find /cache -perm /6000 -exec chmod ug-s {} +; }
}
trap end EXIT
cd /workspace
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
%(way)s
%(commands)s
"""
_WAY = r"""python3 -I -S -c "$0"$'\nserve()\nimport signal\nsignal.pause()' &
for _ in $(seq 100); do (exec 3<>/dev/tcp/127.0.0.1/3128) 2>/dev/null && break; sleep 0.1; done"""


@dataclass(frozen=True, slots=True)
class Bench:
    """What making images needs: a client, an image finder, the owner's label, a voice, and when to stop."""

    client: Any
    find: Find
    owner: str
    say: Callable[[str], None]
    stopped: Callable[[], bool]

    def look(self, until: float, what: str) -> None:
        """Raises Cancelled or SandboxUnavailable when it is time to end."""
        if self.stopped():
            raise Cancelled(f"stopped while {what}")
        if time.monotonic() > until:
            raise SandboxUnavailable(f"{what} took too long", next="make it lighter, or set sandbox.setup_timeout_s")


def prepare(bench: Bench, plan: ImagePlan) -> str:
    """The content id of the image that a plan makes. Raises SandboxUnavailable, ConfigError, Cancelled."""
    tree, reference, commands, env = Path(plan.tree), plan.reference, plan.setup, dict[str, str]()
    if plan.dockerfile:
        reference = _built(bench, plan, devcontainer.Devcontainer(dockerfile=plan.dockerfile, context="."))
    elif plan.devcontainer:
        raw = _inside(tree, plan.devcontainer).read_bytes()
        found = devcontainer.read(raw, plan.devcontainer, plan.devcontainer_env)
        if found.left_out:
            bench.say(f"{plan.devcontainer}: left out {', '.join(found.left_out)}; see sandbox.devcontainer_env")
        reference = found.image or _built(bench, plan, found)
        commands, env = (*found.commands, *commands), dict(found.env)
    if plan.fetch:
        _pull(bench, reference)
    image_id, _ = bench.find(reference)
    made = _set_up(bench, plan, image_id, commands, env) if commands or env else image_id
    tidy(bench, plan, time.time())
    return made


def whose(project: str) -> str:
    """The label's value for a project, which is a path of this machine."""
    return hashlib.sha256(project.encode()).hexdigest()[:16] if project else ""


def tidy(bench: Bench, plan: ImagePlan, now: float) -> None:
    """Remove a project's images that others have superseded."""
    rows = bench.client.images.list(filters={"label": f"{PROJECT}={whose(plan.project)}"}) if plan.project else []
    clear(bench.client, sorted(rows, key=used, reverse=True)[KEPT:], bench.say, now)


def _pull(bench: Bench, image: str) -> None:
    """Fetch an image, where it is not there."""
    if not bench.client.images.list(image):
        bench.say(f"pulling {image} ({PULL_S / 60:g} minutes at most)")
        rows = bench.client.api.pull(image, stream=True, decode=True)
        _follow(bench, rows, time.monotonic() + PULL_S, f"pulling {image}")
        bench.say(f"pulled {image}: {bench.client.images.get(image).attrs.get('Size', 0) >> 20} MiB")


def _follow(bench: Bench, rows: Iterator[dict[str, Any]], until: float, what: str) -> None:
    """Read the engine's progress to its end."""
    said: list[str] = []
    for row in rows:
        bench.look(until, what)
        said = [*said[-5:], str(row.get("stream") or row.get("status") or "").strip()]
        if "error" in row:
            why = " | ".join([*filter(None, said), str(row["error"])])[-400:]
            raise SandboxUnavailable(f"{what} failed", why=why, next="see the file it is built from, and setup_network")


def _inside(tree: Path, path: str) -> Path:
    """A regular file of the tree, through no link that leaves it. Raises ConfigError."""
    found = (tree / path).resolve()
    if not found.is_relative_to(tree.resolve()) or not found.is_file():
        raise ConfigError(f"the base commit has no file {path}", next="commit it, or change the [sandbox] settings")
    return found


def _built(bench: Bench, plan: ImagePlan, wanted: devcontainer.Devcontainer) -> str:
    """The tag of the image built from a Dockerfile of the tree. Every command of it has the set-up's network."""
    from docker.utils.build import create_archive, exclude_paths

    if plan.allow:
        raise ConfigError("sandbox.setup_allow cannot be kept by a build", next='set sandbox.setup_network = "full"')
    tree = Path(plan.tree).resolve()
    context, file = (tree / wanted.context).resolve(), _inside(tree, wanted.dockerfile)
    if not context.is_relative_to(tree) or not file.is_relative_to(context):
        raise ConfigError(f"{wanted.dockerfile} and its context {wanted.context} have to be in the repository")
    ignore, name = context / ".dockerignore", str(file.relative_to(context))
    lines = ignore.read_text(errors="replace").splitlines() if ignore.is_file() and not ignore.is_symlink() else []
    exclude = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    files = sorted(exclude_paths(str(context), [".git", *exclude, f"!{name}"], dockerfile=name))
    with contextlib.closing(create_archive(str(context), files=files)) as packed:
        content = hashlib.file_digest(packed, "sha256").hexdigest()  # pyright: ignore[reportArgumentType]
        recipe = [name, dict(wanted.args), wanted.target, plan.network, content]
        packed.seek(0)
        tag = f"{BUILT}:{hashlib.sha256(json.dumps(recipe).encode()).hexdigest()[:16]}"
        more = {"buildargs": dict(wanted.args), "target": wanted.target or None, "tag": tag, "dockerfile": name}
        once(bench.client, tag, bench.say, lambda: _build(bench, plan, packed, more))
    return tag


def _build(bench: Bench, plan: ImagePlan, packed: Any, more: Mapping[str, Any]) -> None:
    bench.say(f"building the image of {more['dockerfile']} (network {plan.network}, {plan.timeout_s:g} s at most)")
    rows = bench.client.api.build(
        fileobj=packed,
        custom_context=True,
        rm=True,
        forcerm=True,
        decode=True,
        network_mode=policy.NETWORKS[plan.network],
        container_limits={"memory": MEMORY, "memswap": MEMORY},
        labels={PROJECT: whose(plan.project)},
        **more,
    )
    _follow(bench, rows, time.monotonic() + plan.timeout_s, f"building {more['dockerfile']}")


def _set_up(bench: Bench, plan: ImagePlan, image_id: str, commands: Sequence[str], env: Mapping[str, str]) -> str:
    """The content id of the image in which the set-up has been run."""
    tree = Path(plan.tree).resolve()
    about = [
        *[image_id, list(commands), dict(env), plan.network, list(plan.allow), _SCRIPT],
        *[_named(tree, pattern) for pattern in plan.setup_files],
    ]
    tag = f"{SET_UP}:{hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]}"
    way = Egress(plan.allow, tree.parent, 0, 0) if plan.allow else None
    body = set_up_body(plan, image_id, commands, env, way=str(way.folder) if way else "")
    try:
        once(bench.client, tag, bench.say, lambda: _run(bench, plan, body, tag, way))
    finally:
        if way is not None:
            way.close()
    return str(bench.client.images.get(tag).id)


def _run(bench: Bench, plan: ImagePlan, body: Mapping[str, Any], tag: str, way: Egress | None) -> None:
    from docker.errors import NotFound

    bench.say(f"setting up the image as sandbox.setup says (once; {plan.timeout_s:g} s at most)")
    api, name = bench.client.api, f"agent-harness-setup-{secrets.token_hex(6)}"
    try:
        container = api.create_container_from_config({**body, "Labels": {LABEL: bench.owner}}, name)["Id"]
        with tempfile.TemporaryFile() as data:
            with tarfile.open(fileobj=data, mode="w") as tar:
                tar.add(plan.tree, "workspace", filter=_roots)
            data.seek(0)
            api.put_archive(container, "/", data)
        api.start(container)
        _wait(bench, container, plan.timeout_s, way)
        labels = {LABEL: "", "agent-harness.image": "setup", PROJECT: whose(plan.project)}
        changes = ['CMD ["bash"]', "ENTRYPOINT []", *(f'LABEL {name}="{value}"' for name, value in labels.items())]
        api.commit(container, repository=SET_UP, tag=tag.partition(":")[2], changes=changes)
    finally:
        with contextlib.suppress(NotFound):
            api.remove_container(name, force=True, v=True)


def _roots(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    return entry


def set_up_body(
    plan: ImagePlan, image_id: str, commands: Sequence[str], env: Mapping[str, str], *, way: str
) -> dict[str, Any]:
    """The engine's create request for a set-up: root inside and a writable root, but few capabilities, no new
    privileges, the sandbox's system calls, and nothing of the host but the package caches."""
    own, group = plan.user
    exports = [f"export {name}={shlex.quote(value)}" for name, value in plan.env.items()]
    exports += [f"export {name}={value}" for name, value in policy.proxied(plan.allow).items()] if way else []
    script = _SCRIPT % {
        "owner": f"{own}:{group}",
        "way": "\n".join([*([_WAY] if way else []), *exports]),
        "commands": "\n".join(f"bash -c {shlex.quote(command)}" for command in commands),
    }
    mounts = [*plan.caches, *([Mount(way, policy.WAY, read_only=True)] if way else [])]
    binds = [policy.mount(one.source, one.target, one.read_only) for one in mounts]
    return {
        "Image": image_id,
        "Entrypoint": ["bash", "-c"],
        "Cmd": [script, policy.relay_text().decode()] if way else [script],
        "User": "0:0",
        "Env": [f"{key}={value}" for key, value in sorted(env.items())],
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": confined(policy.NETWORKS[plan.network], MEMORY, 0, PIDS, binds),
    }


def _named(tree: Path, pattern: str) -> list[list[str]]:
    """The files that a pattern names, each with its content's digest. What a link shows of elsewhere does not count."""
    found = [path for path in sorted(tree.glob(pattern)) if path.is_file() and path.resolve().is_relative_to(tree)]
    return [[str(path.relative_to(tree)), hashlib.sha256(path.read_bytes()).hexdigest()] for path in found]


def _wait(bench: Bench, container: str, seconds: float, egress: Egress | None) -> None:
    """Wait for a set-up's end. Raises SandboxUnavailable with what it said last, where it is not exit code 0."""
    until = time.monotonic() + seconds
    while (state := bench.client.api.inspect_container(container)["State"]).get("Status") in {"created", "running"}:
        bench.look(until, "setting up the image")
        time.sleep(LOOK_S)
    if refused := {f"{one['host']}:{one['port']}" for one in (egress.denied() if egress is not None else ())}:
        bench.say(f"the set-up was refused {', '.join(sorted(refused))}; see sandbox.setup_allow")
    if state.get("ExitCode") != 0:
        said = bench.client.api.logs(container, tail=8).decode("utf-8", "replace").split("\n")
        raise SandboxUnavailable(
            f"the set-up ended with exit code {state.get('ExitCode')}",
            why=" | ".join(line.strip() for line in said if line.strip())[-500:],
            next="mend sandbox.setup; its network is sandbox.setup_network or setup_allow",
        )
