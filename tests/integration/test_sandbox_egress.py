"""The one way out: what is listed gets through, and nothing else by any door; every refusal is told."""

import http.server
import os
import socket
import threading

import pytest

from agent_harness.errors import UsageError
from agent_harness.types import endpoint
from agent_harness_sandbox import policy
from agent_harness_sandbox.doctor import runs_as
from agent_harness_sandbox.egress import Egress, public
from agent_harness_sandbox.removal import BACKGROUND
from sandboxes import Factory

SECRET = "sk-controller-canary-73"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.seen.append((self.path, dict(self.headers)))
        body = b"reached " + self.path.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass


@pytest.fixture
def web():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.seen = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def proxy(tmp_path):
    deep = tmp_path / ("x" * 120)  # longer than the address of a socket may be
    deep.mkdir()
    made = []

    def start(*allow):
        made.append(Egress(allow, deep, *runs_as()))
        return made[-1]

    yield start
    for one in made:
        one.close()


def ask(way: Egress, text: str) -> str:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(15)
        folder = os.open(way.folder, os.O_RDONLY)
        client.connect(f"/proc/self/fd/{folder}/proxy")
        os.close(folder)
        client.sendall(text.encode("latin-1"))
        data = b""
        while more := client.recv(1 << 16):
            data += more
    return data.decode("latin-1")


def test_a_listed_place_is_reached_by_tunnel_and_by_plain_request(web, proxy):
    port = web.server_port
    way = proxy(f"127.0.0.1:{port}")
    tunnel = ask(way, f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\nGET /in HTTP/1.0\r\n\r\n")
    assert tunnel.startswith("HTTP/1.1 200") and tunnel.endswith("reached /in")
    plain = ask(
        way,
        f"GET http://127.0.0.1:{port}/a?b=c HTTP/1.1\r\nHost: evil\r\nConnection: keep-alive\r\n"
        "Proxy-Authorization: Basic x\r\nX-Own: kept\r\n\r\nGET http://127.0.0.1:1/second HTTP/1.1\r\n\r\n",
    )
    assert plain.endswith("reached /a?b=c")  # the second request went nowhere
    (_, headers) = web.seen[-1]
    assert headers["Host"] == f"127.0.0.1:{port}" and headers["X-Own"] == "kept"
    assert "Proxy-Authorization" not in headers
    assert way.denied() == []


def test_everything_else_is_refused_and_told_once_with_its_count(web, proxy):
    port = web.server_port
    way = proxy("listed.example:443", f"localhost:{port}")
    for target in ("other.example:443", "listed.example:80", "169.254.169.254:80", "[::1]:443", "127.1:443"):
        for _ in range(2):
            assert ask(way, f"CONNECT {target} HTTP/1.1\r\n\r\n").startswith("HTTP/1.1 403"), target
    bent = ask(way, f"CONNECT localhost:{port} HTTP/1.1\r\n\r\n")  # a listed name that leads to a private address
    assert bent.startswith("HTTP/1.1 403") and "not public" in bent
    told = {(one["host"], one["port"]): one["count"] for one in way.denied()}
    assert told[("other.example", 443)] == 2 and told[("169.254.169.254", 80)] == 2 and told[("::1", 443)] == 2
    assert told[("localhost", port)] == 1 and len(told) == 6
    assert way.denied() == [] and web.seen == []


@pytest.mark.parametrize(
    "request_",
    [
        "CONNECT nonsense HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\n\r\n", "GET ftp://h/ HTTP/1.1\r\n\r\n", "\r\n\r\n",
        "GET http://u:p@h/ HTTP/1.1\r\n\r\n", "CONNECT h:443\r\n\r\n", "GET http://h/ HTTP/1.1\r\n folded: x\r\n\r\n",
        "GET http://h:99999/ HTTP/1.1\r\n\r\n", "GET http://h/ HTTP/2\r\n\r\n", "GET http://é/ HTTP/1.1\r\n\r\n",
    ],
)  # fmt: skip
def test_nonsense_is_answered_and_survived(proxy, request_):
    way = proxy("h:80")
    assert ask(way, request_).startswith("HTTP/1.1 400")
    assert ask(way, "CONNECT x:1 HTTP/1.1\r\n\r\n").startswith("HTTP/1.1 403")


def test_a_request_without_end_is_cut(proxy):
    way = proxy("h:80")
    assert ask(way, "GET http://h/ HTTP/1.1\r\nX: " + "x" * (17 << 10)).startswith("HTTP/1.1 431")


@pytest.mark.parametrize(
    ("address", "good"),
    [
        ("1.1.1.1", True), ("2606:4700::1111", True), ("127.0.0.1", False), ("10.1.2.3", False), ("0.0.0.0", False),
        ("169.254.169.254", False), ("100.64.0.1", False), ("224.0.0.1", False), ("255.255.255.255", False),
        ("::1", False), ("::", False), ("fe80::1", False), ("fd00:ec2::254", False), ("::ffff:127.0.0.1", False),
        ("::ffff:1.1.1.1", True), ("64:ff9b::7f00:1", False), ("2002:7f00:1::", False), ("ff02::1", False),
    ],
)  # fmt: skip
def test_what_counts_as_public(address, good):
    assert public(address) is good


def test_endpoints_have_one_spelling():
    assert endpoint("Example.ORG.:443") == ("example.org", 443)
    assert endpoint("[2001:DB8:0::1]:80") == ("2001:db8::1", 80)
    for wrong in (
        "host",
        "host:0",
        "host:65536",
        "host:x",
        ":80",
        "a b:80",
        "http://h:80",
        "*.h:80",
        "[h]:80",
        "::1:80",
    ):
        with pytest.raises(ValueError):
            endpoint(wrong)


def test_closing_leaves_nothing_and_may_be_repeated(proxy):
    way = proxy("h:80")
    way.close()
    way.close()
    assert not way.folder.exists()


# --- from inside --------------------------------------------------------------------------------------------

PROBE = """
import os, socket, urllib.request
port = {port}
def tried(call):
    try:
        return str(call())
    except OSError as fault:
        return type(fault).__name__
way = urllib.request.build_opener(urllib.request.ProxyHandler({{"http": os.environ["HTTP_PROXY"]}}))
def fetch(url):
    try:
        return way.open(url, timeout=10).read().decode()
    except urllib.error.HTTPError as fault:
        return fault.code
def rival():
    os.unlink("/run/agent-harness/proxy")
print(fetch(f"http://127.0.0.1:{{port}}/inside"), fetch("http://169.254.169.254/"), fetch(f"http://127.0.0.1:{{port + 1}}/"))
print(tried(lambda: socket.create_connection(("127.0.0.1", port), 2)), tried(lambda: socket.create_connection(("1.1.1.1", 53), 2)),
      tried(lambda: socket.create_connection(("2606:4700::1111", 443), 2)), tried(lambda: socket.getaddrinfo("example.org", 80)),
      tried(lambda: socket.create_connection(("172.17.0.1", port), 2)), tried(rival))
print(sorted(name for _, name in socket.if_nameindex()))
"""


@pytest.fixture
def make():
    factory = Factory()
    yield factory
    factory.close()


@pytest.mark.docker
def test_the_sandbox_reaches_what_is_listed_and_nothing_else(make, web, monkeypatch):
    monkeypatch.setenv("AGENT_HARNESS_TEST_KEY", SECRET)
    told = []
    port = web.server_port
    box = make(allow=(f"127.0.0.1:{port}",), denied=told.append)
    lines = box.run(f"python3 - <<'X'\n{PROBE.format(port=port)}\nX").head.decode().splitlines()
    assert lines[0] == "reached /inside 403 403"
    assert lines[1] == "ConnectionRefusedError OSError OSError gaierror OSError OSError"
    assert lines[2] == "['lo']"
    assert {(one["host"], one["port"]) for one in told} == {("169.254.169.254", 80), ("127.0.0.1", port + 1)}
    # the relay outlives the sweep after every command, and a flood of connections
    flood = (
        "import socket\nkept=[]\nfor _ in range(300):\n kept.append(socket.create_connection(('127.0.0.1', 3128), 2))"
    )
    box.run(f'python3 -c "{flood}"', timeout_s=20)
    assert box.run(f"python3 - <<'X'\n{PROBE.format(port=port)}\nX").head.decode().startswith("reached /inside 403")
    shown = box.run("env; cat /proc/1/environ; cat /proc/self/mountinfo").head.decode()
    assert SECRET not in shown and SECRET not in str(web.seen)
    folder = box.sandbox._around._egress.folder
    box.sandbox.close()
    assert BACKGROUND.wait(30)
    assert not folder.exists()


@pytest.mark.docker
def test_full_is_by_explicit_choice(make):
    box = make(network="full")
    assert b"eth0" in box.run("cat /proc/net/dev").head
    assert b"HTTP_PROXY" not in box.run("env").head


def test_a_network_of_another_kind_is_no_spec():
    factory = Factory()
    for changes in ({"network": "bridge"}, {"network": "full", "allow": ("h:80",)}):
        with pytest.raises(UsageError, match="network"):
            policy.create_body(factory.spec(**changes), "x")
    factory.close()
