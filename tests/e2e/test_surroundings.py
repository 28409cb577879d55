"""A run in a sandbox with all its surroundings: a set-up image, a mount, a cache, a server, a way out."""

import contextlib
import http.server
import threading

import pytest

from agent_harness.cli.events import Progress
from agent_harness.errors import ConfigError, Exit, SandboxUnavailable, UsageError
from agent_harness.types.kinds import Kind
from agent_harness_sandbox.client import connect
from e2e import scripts
from e2e.test_main_job import play
from sandboxes import made

pytestmark = pytest.mark.docker

SERVER = "import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=8077, bind='127.0.0.1')"
GET = "python3 -c \"import urllib.request as u; print(u.urlopen('{}', timeout=9).status)\""


class Index(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *words):
        pass


@pytest.fixture
def index():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.fixture
def clean(desk):
    yield
    with contextlib.closing(connect()) as client:
        for tag in made(client, str(desk.state())):
            client.api.remove_image(tag, force=True)


def test_a_run_has_what_the_project_declares(desk, tmp_path, index, clean):
    data, own = tmp_path / "data", tmp_path / "own"
    for folder in (data, own):
        folder.mkdir(mode=0o777)
        folder.chmod(0o777)
    (data / "table").write_text("rows\n")
    settings = f"""
[sandbox]
memory = "768m"
tmp_size = "128m"
allow = ["127.0.0.1:{index}"]
setup = ["cp bill/split.py /opt/at-base", "touch /cache/pip/filled"]
caches = ["pip"]
mounts = [{{source = "{data}", target = "/data"}}, {{source = "{own}", target = "/own", read_only = false}}]
[services.web]
image = "own"
command = ["python3", "-c", "{SERVER}"]
ports = [8077]
"""
    seen = "cat /data/table /opt/at-base >/dev/null && test -e /cache/pip/filled && ! touch /cache/pip/x 2>/dev/null"
    judge = f"{seen} && test ! -e /own && {GET.format('http://web:8077/')}"
    coder = [
        scripts.bash(f"{seen} && touch /own/x && {GET.format(f'http://127.0.0.1:{index}/')}"),
        scripts.bash(GET.format("http://example.org/")),
        *scripts.IMPLEMENTER[3:],
    ]
    critic = [scripts.bash(judge), *scripts.REVIEWER]
    told = []
    desk.events = type(
        "Both", (list,), {"append": lambda self, event: (list.append(self, event), Progress(told.append)(event))}
    )()
    desk_settings = desk.settings
    desk.settings = lambda text: desk_settings(
        text, checks=f"""['python3 -m pytest -q', {{run = '''{judge}''', kind = 'command'}}]"""
    )
    _, report, _ = play(desk, coder, critic, settings=settings)
    assert report.exit is Exit.OK, report.reason
    events = {
        kind: [event.data for event in desk.events if event.kind == kind]
        for kind in (Kind.NETWORK_DENIED, Kind.IMAGE_READY, Kind.COMMAND_ENDED)
    }
    assert [(one["where"], one["host"], one["port"]) for one in events[Kind.NETWORK_DENIED]] == [
        ("implementer", "example.org", 80)
    ]
    assert len(events[Kind.IMAGE_READY]) == 1
    codes = [
        one["exit_code"]
        for one in events[Kind.COMMAND_ENDED]
        if one["where"] not in {"checks-base", "checks-candidate"}
    ]
    assert codes[:2] == [0, 1]
    assert any("network refused example.org:80" in line for line in told) and any("image " in line for line in told)


@pytest.mark.parametrize(
    ("settings", "error", "why"),
    [
        ('[sandbox]\nmounts = [{source = "/", target = "/host"}]', UsageError, "whole machine"),
        ('[services.db]\nimage = "no/such:1"', SandboxUnavailable, "doctor --fix"),
        ('[sandbox]\nimage = "no/such:1"', SandboxUnavailable, "doctor --fix"),
        ('[sandbox]\nallow = ["x:1"]\nnetwork = "full"', ConfigError, "allow list"),
    ],
)
def test_what_cannot_be_stops_before_an_item_is_touched(desk, settings, error, why):
    with pytest.raises(error, match=why):
        play(desk, [], settings=settings)


def test_a_dry_run_and_doctor_use_the_image_that_the_base_makes(desk, clean):
    desk.settings(
        '[sandbox]\nsetup = ["touch /opt/made"]\n[services.db]\nimage = "no/such:1"',
        checks="[{run = 'test -e /opt/made', kind = 'command'}]",
    )
    with desk.app() as app, pytest.raises(SandboxUnavailable, match="no/such:1"):
        app.doctor(fix=False)
    desk.settings('[sandbox]\nsetup = ["touch /opt/made"]', checks="[{run = 'test -e /opt/made', kind = 'command'}]")
    with desk.app(replay=None) as app:
        assert all(one.ok for one in app.doctor(fix=False))
        desk.add(app)
        plan = app.dry_run(None)
        assert plan.checks[0].passed and plan.image.startswith("sha256:")
