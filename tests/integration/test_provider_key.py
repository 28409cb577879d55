"""A key planted in every place where one can be, and a search of everything that is written, shown or kept."""

import base64
import contextlib
import json
import os
import subprocess
import sys
import traceback
import zlib
from pathlib import Path
from urllib.parse import quote

import pytest

from agent_harness.demo import make_repository
from agent_harness.errors import HarnessError
from agent_harness.redact import Redactor
from agent_harness.types import Message, ModelRequest
from agent_harness_adapters.litellm_transport import LitellmTransport
from e2e import scripts
from e2e.conftest import Desk
from fakes.openai_server import call, fault
from fakes.provider_server import ProviderServer, http

PROGRAM = Path(sys.executable).with_name("agent-harness")
KEY = 'sk-planted+canary/0123456789"abcdef'  # with characters that JSON and URLs write differently
PLAIN = "sk-planted-plain-0123456789abcdef"  # a second one, that fits where only letters and digits do
FORMS = {
    "raw": KEY,
    "plain": PLAIN,
    "json": json.dumps(KEY)[1:-1],
    "url": quote(KEY, safe=""),
    "base64": base64.b64encode(KEY.encode()).decode().rstrip("="),
    "in a header": base64.b64encode(f"user:{KEY}".encode()).decode().rstrip("="),
    "hex": KEY.encode().hex(),
}
SHOWN = " ".join(FORMS.values())


def leaks(data: bytes) -> list[str]:
    return [name for name, form in FORMS.items() if form.encode() in data]


class Inspector:
    """Looks at the containers of an item, as the engine describes them, while a model is being asked."""

    def __init__(self, item: str) -> None:
        self.item, self.seen = item, b""

    def __call__(self, _seen: object) -> dict:
        words = ["docker", "ps", "-q", "--filter", f"label=agent-harness.item={self.item}"]
        names = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
        for name in names:
            for words in (["inspect", name], ["top", name]):
                done = subprocess.run(["docker", *words], capture_output=True, check=True)
                self.seen += done.stdout + done.stderr
        return scripts.bash("env; cat /proc/1/environ /proc/self/environ | tr '\\0' '\\n'; ps aux || true")


def planted(inspector: Inspector) -> list:
    """What the model and its server say: the key in everything that is theirs to choose."""
    return [
        fault(500, f"boom {SHOWN}", code=KEY, headers={"x-echo": KEY, "set-cookie": f"k={quote(KEY)}", "Retry-After": KEY}),
        {"body": f"<html>{SHOWN}</html>"},
        inspector,
        call("bash", {"command": f"echo '{SHOWN}'"}, content=f"I know {SHOWN}", model=PLAIN, usage={"cost": KEY}),
        {"tool_calls": [{"name": "bash", "arguments": {"command": "true"}, "id": PLAIN}], "finish": KEY},
        call(f"bash-{PLAIN}", {}),
        scripts.bash("true"),
        call("bash", f'{{"command": "{KEY}'),
        call("bash", {"command": "true", KEY: KEY}),
        scripts.edit("bill/split.py", {"old": KEY, "new": SHOWN}),
        scripts.edit(f"bill/{quote(KEY, safe='')}.py", scripts.SPLIT_FIX),
        scripts.edit("bill/split.py", scripts.SPLIT_FIX, message={"reasoning_content": SHOWN, "refusal": KEY}),
        scripts.bash(scripts.TESTS),
        scripts.done(f"The shares now add up to the total, and the key is {SHOWN}."),
    ]  # fmt: skip


@pytest.mark.docker
def test_a_planted_key_is_nowhere(tmp_path):
    folder, temporary = tmp_path / "project", tmp_path / "tmp"
    folder.mkdir()
    temporary.mkdir()
    make_repository(folder)
    inspector = Inspector("planted")
    desk, shown = Desk(folder), {}
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "TMPDIR": str(temporary),
        "SCRIPTED_KEY": KEY,
        "PLAIN_KEY": PLAIN,
        "AGENT_HARNESS_LOG": "debug",
        "LITELLM_LOG": "DEBUG",
        "OPENAI_LOG": "debug",
    }

    def cli(*words: str, **more: str) -> int:
        done = subprocess.run(
            [PROGRAM, *words], cwd=folder, env=env | more, capture_output=True, stdin=subprocess.DEVNULL, timeout=300
        )
        shown[f"{len(shown)} {words} {more}"] = done.stdout + done.stderr
        return done.returncode

    with desk.serving(coder=[*planted(inspector), fault(401, f"Incorrect API key provided: {SHOWN}")]) as server:
        spare = f'[routes.spare]\nmodel = "openai/spare"\nbase_url = "{server.base_url}"\napi_key_env = "PLAIN_KEY"\n'
        desk.settings(f"{spare}allow_unpriced = true\n[review]\nenabled = false\n")
        for name in ("planted", "refused"):
            cli("queue", "add", f"Splitting loses cents {KEY}", "--id", name, "--brief", f"Use {SHOWN}")
        codes = [cli("run", "--item", name, "--json", "--record", "answers.jsonl") for name in ("planted", "refused")]
        assert codes == [0, 4], "".join(text.decode()[-3000:] for words, text in shown.items() if "'run'" in words)
        said = b"".join(seen.raw for seen in server.requests)
        assert {seen.headers["authorization"] for seen in server.requests} == {f"Bearer {KEY}"}
    assert b"Env" in inspector.seen  # it did see a container
    for words in ("audit show --body --json", "audit show --body", "audit cost", "audit ls --json", "audit verify"):
        cli(*words.split())
    for words in ("queue list --json", "queue show planted --json", "queue show refused", "config show"):
        cli(*words.split())
    safe = quote(KEY, safe="")
    for url in (f"http://host/v1?key={safe}", f"http://user:{safe}@host/v1", f"http://host/v1#{safe}"):
        assert cli("config", "show", "--set", f"routes.coder.base_url={url}") == 2
        assert cli("config", "show", AGENT_HARNESS_ROUTES__CODER__BASE_URL=url) == 2

    assert {name: found for name, text in shown.items() if (found := leaks(text))} == {}
    assert leaks(inspector.seen) == []
    assert [
        said[at - 200 : at + 60] for form in FORMS.values() if (at := said.find(form.encode())) >= 0
    ] == []  # nor back
    assert {str(path): found for path, data in kept(tmp_path) if (found := leaks(data))} == {}


def kept(root: Path):
    """Every file's bytes, what is compressed in them, and every object of every repository."""
    for path in root.rglob("*"):
        if path.is_file() and not path.is_symlink():
            data = path.read_bytes()
            yield path, data
            yield f"{path} inflated", b"".join(inflated(data))
        if path.is_dir() and (path / "objects").is_dir():
            words = ["git", "-c", "safe.directory=*", "-C", str(path), "cat-file", "--batch-all-objects", "--batch"]
            yield f"{path} objects", subprocess.run(words, capture_output=True, check=True).stdout


def inflated(data: bytes):
    """All zlib streams in some bytes, such as a database's pages that follow each other."""
    at = data.find(b"\x78")
    while at >= 0:
        if at + 1 < len(data) and data[at + 1] in {0x01, 0x5E, 0x9C, 0xDA}:
            with contextlib.suppress(zlib.error):
                yield zlib.decompressobj().decompress(data[at:])
        at = data.find(b"\x78", at + 1)


def test_the_search_finds_what_is_there(tmp_path):
    """The search itself, on each form in each kind of hiding place."""
    for number, form in enumerate(FORMS.values()):
        (tmp_path / f"plain-{number}").write_text(f"a {form} b")
        (tmp_path / f"packed-{number}").write_bytes(b"head" + zlib.compress(f"a {form} b".encode()) + b"tail")
    found = [str(path) for path, data in kept(tmp_path) if leaks(data)]
    assert len(found) == 2 * len(FORMS)


@pytest.mark.parametrize("model", ["openai/m", "openai/responses/m", "anthropic/claude-m", "gemini/gemini-m"])
@pytest.mark.parametrize("status", [200, 307, 400, 401, 429, 500])
def test_no_exception_holds_it(model, status, monkeypatch, capfd):
    monkeypatch.setenv("PLANTED_KEY", KEY)
    redact = Redactor({"PLANTED_KEY": KEY})
    for body in (f"<html>{SHOWN}", {"error": {"message": SHOWN, "code": KEY, "status": SHOWN}}, {KEY: SHOWN}):
        with ProviderServer(http(body, status, x_echo=quote(KEY), location=f"/?key={quote(KEY)}")) as server:
            transport = LitellmTransport(model=model, base_url=server.root, api_key_env="PLANTED_KEY", redact=redact)
            with pytest.raises(HarnessError) as caught:
                transport.send(ModelRequest("r", (Message("user", "hi"),), (), 99), 5.0)
        error = caught.value
        told = ["".join(traceback.format_exception(error)), repr(error), repr(error.args), repr(vars(error))]
        assert leaks("\n".join([*told, *capfd.readouterr()]).encode()) == []
        assert error.__cause__ is None and error.__context__ is None
        assert KEY not in repr(vars(transport))


def test_no_env_file_of_the_project_says_where_a_key_goes(tmp_path):
    """litellm would read the `.env` above its own folder: of the project under review, where the environment lies in it."""
    import litellm

    packages = Path(litellm.__file__).parents[1]
    (tmp_path / ".env").write_text("OPENAI_BASE_URL=http://elsewhere.example/v1\nOPENAI_API_KEY=theirs\n")
    link = tmp_path / ".venv/lib/site-packages"
    link.parent.mkdir(parents=True)
    link.symlink_to(packages)
    roots = [str(Path(__file__).parents[2] / name) for name in ("harness", "adapters")]
    told = "from agent_harness_adapters.litellm_transport import _litellm as load; import os; print(load().__file__)"
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join([str(link), *roots])}
    words = [
        sys.executable,
        "-S",
        "-c",
        f"{told}; print(os.environ.get('OPENAI_BASE_URL'), os.environ.get('OPENAI_API_KEY'))",
    ]
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    where, seen = done.stdout.splitlines()[-2:]
    assert where.startswith(str(link)), "the copy that would have read it"
    assert seen == "None None"
