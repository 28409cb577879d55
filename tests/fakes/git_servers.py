"""Real servers of git repositories: git's own CGI behind HTTP(S) of Python, and an sshd of its own."""

from __future__ import annotations

import base64
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from fakes.repos import ENV, git

SSHD = shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin:/usr/local/sbin")


class GitHttp(ThreadingHTTPServer):
    """Serves the repositories below a folder. `user` and `password` are asked for where they are set; `cut` names the
    service (`git-upload-pack`, `git-receive-pack`) whose connection is dropped in the middle."""

    daemon_threads = True

    def __init__(self, root: Path, *, tls: tuple[Path, Path] | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.root, self.user, self.password, self.cut = root, "", "", ""
        self.seen: list[str] = []
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.server_port}"
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is no news."""

    def stop(self) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: GitHttp  # pyright: ignore[reportIncompatibleVariableOverride]

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._serve(b"")

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])  # requests below http.postBuffer are not chunked
        if self.server.cut and self.path.endswith(f"/{self.server.cut}"):
            self.rfile.read(min(length, 64))
            if self.server.cut == "git-upload-pack":
                self._begin(200, {"Content-Type": f"application/x-{self.server.cut}-result", "Content-Length": "9999"})
                self.wfile.write(b"0008NAK\n")
            self.close_connection = True
            return
        self._serve(self.rfile.read(length))

    def _serve(self, body: bytes) -> None:
        wanted = base64.b64encode(f"{self.server.user}:{self.server.password}".encode()).decode()
        self.server.seen.append(f"{self.command} {self.path}")
        if self.server.user and self.headers.get("Authorization") != f"Basic {wanted}":
            self._begin(401, {"WWW-Authenticate": 'Basic realm="git"', "Content-Length": "0"})
            return
        path, _, query = self.path.partition("?")
        env = {
            **ENV,
            "GIT_PROJECT_ROOT": str(self.server.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REMOTE_USER": "somebody",
            "REMOTE_ADDR": "127.0.0.1",
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "HTTP_GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        done = subprocess.run(["git", "http-backend"], input=body, env=env, capture_output=True, check=False)
        head, _, answer = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
        self._begin(int(fields.pop("Status", "200").split()[0]), {**fields, "Content-Length": str(len(answer))})
        self.wfile.write(answer)

    def _begin(self, code: int, fields: dict[str, str]) -> None:
        self.send_response(code)
        for name, value in fields.items():
            self.send_header(name, value)
        self.end_headers()


def certificate(folder: Path) -> tuple[Path, Path]:
    """A throw-away certificate for 127.0.0.1 and its key."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    more = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*new, *more], check=True, capture_output=True)
    return cert, key


class Sshd:
    """An sshd of the caller's own on a spare port of 127.0.0.1, with keys made for it."""

    def __init__(self, folder: Path) -> None:
        assert SSHD
        for name in ("host", "user", "stranger"):
            path = folder / name
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
        (folder / "allowed").write_text((folder / "user.pub").read_text())
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        host = (folder / "host.pub").read_text()
        (folder / "known").write_text(f"[127.0.0.1]:{self.port} {host}")
        settings = {
            "ListenAddress": f"127.0.0.1:{self.port}",
            "HostKey": folder / "host",
            "AuthorizedKeysFile": folder / "allowed",
            "PidFile": "none",
            "StrictModes": "no",
            "UsePAM": "no",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "PermitRootLogin": "yes",
        }
        (folder / "config").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
        self.folder, self.url = folder, f"ssh://127.0.0.1:{self.port}"
        self.log = (folder / "log").open("w+b")
        args = [SSHD, "-D", "-e", "-f", str(folder / "config")]
        self.process = subprocess.Popen(args, stderr=self.log, stdin=subprocess.DEVNULL)
        self._wait()

    def _wait(self) -> None:
        until = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                if self.process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(self.said()) from None
                time.sleep(0.05)
            else:
                return

    def said(self) -> str:
        """What it wrote."""
        self.log.seek(0)
        return self.log.read().decode("utf-8", "replace")

    def command(self, key: str = "user", known: str = "known") -> str:
        """What a user would put into GIT_SSH_COMMAND."""
        options = f"-o IdentitiesOnly=yes -o IdentityAgent=none -o UserKnownHostsFile={self.folder / known}"
        return f"ssh -F none -i {self.folder / key} {options} -o GlobalKnownHostsFile=none"

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(10)
        self.log.close()


def bare(source: Path, where: Path) -> Path:
    """A bare copy that takes pushes over HTTP."""
    git(source.parent, "clone", "-q", "--bare", str(source), str(where))
    git(where, "config", "http.receivepack", "true")
    return where
