"""What of a devcontainer.json is taken, and what is refused by name."""

import json

import pytest

from agent_harness.errors import ConfigError
from agent_harness_sandbox.devcontainer import read

PATH = ".devcontainer/devcontainer.json"


def test_comments_trailing_commas_and_what_editors_want_do_not_matter():
    raw = b"""// top
    { "name": "a // b, }", /* "privileged": true, */ "image": "own:1", "forwardPorts": [3000,], "features": {}, "privileged": false,
      "containerEnv": {"A": "1, ]", "SECRET": "x",}, // end
      "onCreateCommand": ["pip", "install", "a b"], "postCreateCommand": {"x": "make x", "y": ["make", "y"]}, }"""
    found = read(raw, PATH, ["A", "B"])
    assert (found.image, found.env, found.left_out) == ("own:1", {"A": "1, ]"}, ("SECRET",))
    assert found.commands == ("pip install 'a b'", "make x", "make y")


def test_a_build_is_taken_from_the_files_own_folder():
    found = read(
        b'{"build": {"dockerfile": "Dockerfile", "context": "..", "args": {"V": "3"}, "target": "dev"}}', PATH, []
    )
    assert (found.dockerfile, found.context, found.args, found.target) == (
        ".devcontainer/Dockerfile",
        ".",
        {"V": "3"},
        "dev",
    )
    assert read(b'{"build": {"dockerfile": "D"}}', "devcontainer.json", []).context == "."


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"features": {"a": {}}}, "features is refused.*another tool"), ({"dockerComposeFile": "x"}, "compose is not read"),
        ({"mounts": ["x"]}, "sandbox.mounts"), ({"runArgs": ["--privileged"]}, "no argument reaches"),
        ({"privileged": True}, "no sandbox is privileged"), ({"initializeCommand": "x"}, "run on the host"),
        ({"capAdd": ["SYS_PTRACE"]}, "capabilities"), ({"securityOpt": ["x"]}, "profile"), ({"novel": 1}, "does not know"),
        ({"build": {"dockerfile": "x"}}, "either image or build"), ({"containerEnv": {"A": "${localEnv:HOME}"}}, "without"),
        ({"image": "${localEnv:X}"}, "without"), ({"postCreateCommand": 3}, "has to be a text"), ({"image": 3}, "text"),
    ],
)  # fmt: skip
def test_everything_else_is_refused_by_name(more, why):
    with pytest.raises(ConfigError, match=why):
        read(json.dumps({"image": "a", **more}).encode(), PATH, ["A"])


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"{}", b"\xff", b'{"build": {}}', b"[" * 100_000])
def test_what_cannot_be_read_is_one_line(raw):
    with pytest.raises(ConfigError):
        read(raw, PATH, [])
