"""A sandbox as an environment of mini-swe-agent: its users' own agents run on one of ours, unchanged.

It is its `DockerEnvironment` 2.4 (settings, templates, trajectory, the line that submits) with one of our sandboxes for
a container. What differs is what a sandbox of ours does: nothing outlives its command, and output beyond 16 MiB is cut
in its middle, with a line that says so."""

import os
import shlex
from typing import Any

from agent_harness.errors import HarnessError
from agent_harness.ports import Sandbox
from agent_harness.types import Command, CommandEnd, CommandResult

KEEP = 16 << 20


def harness_environment(sandbox: Sandbox, **settings: Any) -> Any:
    """An environment on this sandbox, which its `cleanup` closes. Settings are those of mini-swe-agent's own."""
    from minisweagent.environments.docker import DockerEnvironment

    class HarnessEnvironment(DockerEnvironment):  # type: ignore[misc]  # the vendor's class is Any here
        def _start_container(self) -> None:
            self.container_id = sandbox.describe().get("container")

        def execute(self, action: dict[str, Any], cwd: str = "", *, timeout: float | None = None) -> dict[str, Any]:
            """Run `action["command"]`. Raises mini-swe-agent's Submitted when its output says so."""
            words = [*self.config.interpreter, action.get("command", "")]
            seconds = timeout or self.config.timeout
            forwarded = {name: os.environ[name] for name in self.config.forward_env if name in os.environ}
            env = {**forwarded, **self.config.env}
            script = f"exec {shlex.join(words)}"
            try:
                done = sandbox.execute(Command(script, seconds, cwd or self.config.cwd, env, keep=KEEP))
            except HarnessError as fault:
                return _failed("", type(fault).__name__, fault.line)
            if done.end in {CommandEnd.TIMEOUT, CommandEnd.IDLE}:
                return _failed(_text(done), "TimeoutExpired", f"Command '{words}' timed out after {seconds} seconds")
            lines = _text(done).replace("\r\n", "\n").replace("\r", "\n")  # as a stream in text mode has them
            output = {"output": lines, "returncode": done.exit_code, "exception_info": ""}
            self._check_finished(output)
            return output

        def cleanup(self) -> None:
            """Close the sandbox; safe to repeat."""
            sandbox.close()

        def __del__(self) -> None:
            """Leaves the sandbox to whoever made it."""

    image = str(sandbox.describe().get("image", ""))
    return HarnessEnvironment(**{"image": image, "cwd": "/workspace", **settings})


def _text(done: CommandResult) -> str:
    cut = f"\n[{done.cut_bytes} bytes cut; whole in {done.saved_to or 'no file'}]\n".encode() if done.cut_bytes else b""
    return (done.head + cut + done.tail).decode("utf-8", "replace")


def _failed(output: str, kind: str, why: str) -> dict[str, Any]:
    return {
        "output": output,
        "returncode": -1,
        "exception_info": f"An error occurred while executing the command: {why}",
        "extra": {"exception_type": kind, "exception": why},
    }
