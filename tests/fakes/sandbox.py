"""A sandbox without a container, for unit tests only: host bash in a folder, or scripted results."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent_harness.errors import SandboxLost
from agent_harness.types import Command, CommandEnd, CommandResult, Mode

Act = Callable[[Command], CommandResult]


def result(output: bytes | str = b"", code: int = 0, end: CommandEnd = CommandEnd.EXITED, **more: Any) -> CommandResult:
    """A command's result with its whole output."""
    raw = output.encode() if isinstance(output, str) else output
    return CommandResult(end, code, raw, b"", more.pop("total", len(raw)), 0.01, **more)


class FakeSandbox:
    """Port Sandbox. `root` stands for /workspace; where `act` is given, it answers the commands instead of bash."""

    def __init__(self, root: Path, mode: Mode = Mode.RW, act: Act | None = None) -> None:
        self.root, self.mode, self._act = root, mode, act
        self.commands: list[Command] = []
        self.closed = False

    def execute(self, command: Command) -> CommandResult:
        if self.closed:
            raise SandboxLost("the sandbox is closed")
        self.commands.append(command)
        if self._act:
            return self._act(command)
        script = command.script.replace("/workspace", str(self.root))
        try:
            done = subprocess.run(
                ["bash", "-c", script],
                cwd=self.root,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=command.timeout_s,
                env={"PATH": os.environ["PATH"], "HOME": str(self.root)},
                check=False,
            )
        except subprocess.TimeoutExpired as over:
            return result(over.output or b"", -1, CommandEnd.TIMEOUT)
        out = done.stdout.replace(str(self.root).encode(), b"/workspace")
        if len(out) <= command.keep:
            saved = "/tmp/.harness-output/1" if command.save is not None and len(out) > command.save else ""
            return result(out, done.returncode, saved_to=saved)
        head = command.keep // 5
        tail = out[-(command.keep - head) :]
        return CommandResult(
            CommandEnd.EXITED, done.returncode, out[:head], tail, len(out), 0.01, "/tmp/.harness-output/1"
        )

    def read_file(self, path: str, limit: int) -> bytes:
        data = self._inside(path).read_bytes()
        if len(data) > limit:
            raise ValueError(f"{path} is larger than {limit} bytes")
        return data

    def write_file(self, path: str, data: bytes) -> None:
        target = self._inside(path)
        if self.mode is Mode.RO:
            raise PermissionError(f"{path}: the workspace is read-only")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)

    def describe(self) -> dict[str, Any]:
        return {"container": "fake", "mode": self.mode.value}

    def close(self) -> None:
        self.closed = True

    def _inside(self, path: str) -> Path:
        target = Path(path.replace("/workspace", str(self.root), 1))
        if target.is_symlink() or not target.resolve().is_relative_to(self.root.resolve()):
            raise ValueError(f"{path}: a link, or outside the workspace")
        return target
