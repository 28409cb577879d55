"""A sandbox as an environment of mini-swe-agent: its users' own agents run on one of ours, unchanged.

The contract is that of its `DockerEnvironment` 2.4: results, variables, folder, timeouts, faults, templates, the line
that submits. What differs is what a sandbox of ours does: nothing outlives its command, and output beyond 16 MiB is
cut in its middle, with a line that says so."""

import logging
import os
import platform
import shlex
from typing import Any

from pydantic import BaseModel

from agent_harness.errors import HarnessError
from agent_harness.ports import Sandbox
from agent_harness.types import Command, CommandEnd, CommandResult

KEEP = 16 << 20
SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


class HarnessEnvironmentConfig(BaseModel):
    """What may be set, under the names that mini-swe-agent's configuration files use."""

    image: str = ""
    cwd: str = "/workspace"
    env: dict[str, str] = {}
    forward_env: list[str] = []
    """Variables of this process that commands shall see, where set; `env` wins."""
    timeout: float = 30
    """Seconds for one command."""
    interpreter: list[str] = ["bash", "-lc"]


class HarnessEnvironment:
    """One sandbox, which `cleanup` closes. Keyword arguments are those of `HarnessEnvironmentConfig`."""

    def __init__(self, sandbox: Sandbox, *, logger: logging.Logger | None = None, **kwargs: Any) -> None:
        self.logger = logger or logging.getLogger("minisweagent.environment")
        self._sandbox = sandbox
        about = sandbox.describe()
        self.config = HarnessEnvironmentConfig(**{"image": str(about.get("image", "")), **kwargs})
        self.container_id = about.get("container")

    def execute(self, action: dict[str, Any], cwd: str = "", *, timeout: float | None = None) -> dict[str, Any]:
        """Run `action["command"]`. Raises mini-swe-agent's Submitted when its output says so."""
        words = [*self.config.interpreter, action.get("command", "")]
        seconds = timeout or self.config.timeout
        forwarded = {name: os.environ[name] for name in self.config.forward_env if name in os.environ}
        env = {**forwarded, **self.config.env}
        workdir = cwd or self.config.cwd
        try:
            done = self._sandbox.execute(Command(f"exec {shlex.join(words)}", seconds, workdir, env, keep=KEEP))
        except HarnessError as fault:
            return _failed("", type(fault).__name__, fault.line)
        if done.end in {CommandEnd.TIMEOUT, CommandEnd.IDLE}:
            return _failed(_text(done), "TimeoutExpired", f"Command '{words}' timed out after {seconds} seconds")
        lines = _text(done).replace("\r\n", "\n").replace("\r", "\n")  # as a stream in text mode has them
        output = {"output": lines, "returncode": done.exit_code, "exception_info": ""}
        self._check_finished(output)
        return output

    def _check_finished(self, output: dict[str, Any]) -> None:
        lines = output["output"].lstrip().splitlines(keepends=True)
        if lines and lines[0].strip() == SUBMIT and output["returncode"] == 0:
            from minisweagent.exceptions import Submitted

            text = "".join(lines[1:])
            extra = {"exit_status": "Submitted", "submission": text}
            raise Submitted({"role": "exit", "content": text, "extra": extra})

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:
        """What prompts may name: the settings, this machine's `uname`, and what is given."""
        from minisweagent.utils.serialize import recursive_merge

        merged: dict[str, Any] = recursive_merge(self.config.model_dump(), platform.uname()._asdict(), kwargs)
        return merged

    def serialize(self) -> dict[str, Any]:
        """For the trajectory file."""
        kind = f"{type(self).__module__}.{type(self).__name__}"
        settings = self.config.model_dump(mode="json")
        return {"info": {"config": {"environment": settings, "environment_type": kind}}}

    def cleanup(self) -> None:
        """Close the sandbox; safe to repeat."""
        self._sandbox.close()


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
