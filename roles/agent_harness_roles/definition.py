"""A role as its folder defines it: role.toml, system.md, task.md, schema.json, validator.py."""

import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from runpy import run_path
from string import Template
from typing import Any, TypeAlias

from agent_harness.errors import UsageError
from agent_harness.ports import Budget, Environment, Task, Termination
from agent_harness.types import JSON, NANO, Limits, Mode, Role, Spend, digest
from agent_harness_roles.evidence import Evidence, Shown

_FILES = ("role.toml", "system.md", "task.md", "schema.json", "validator.py")


Validate: TypeAlias = Callable[[JSON, Mapping[str, Any], Evidence], tuple[list[str], dict[str, Any]]]
"""What a validator.py has, as `validate`: it judges a submission, which fits the schema already, by the facts and by
what the run really did. No problems, and the result the run gives; or problems, for the model."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A role with what only the runner needs of its folder."""

    role: Role
    sections: Mapping[str, Template]
    """What stands around a variable of the prompts, there only when the variable has a text."""
    validate: Validate
    story: str = ""
    """What is said once the first submission was accepted: it has the variable `story`, and asks for another."""

    def opening(self, role: Role, variables: Mapping[str, str]) -> tuple[str, str]:
        """The system and the task prompt. A variable's text is never read as a template.

        Raises UsageError for a variable that is missing, or that no prompt of the role knows."""
        templates = (Template(role.system), Template(role.task))
        required = {name for one in templates for name in one.get_identifiers()} - self.sections.keys()
        later = {"story"} if self.story else set()
        missing, unknown = required - variables.keys(), variables.keys() - required - self.sections.keys() - later
        if missing or unknown:
            said = [f"missing {', '.join(sorted(missing))}"] * bool(missing)
            said += [f"unknown {', '.join(sorted(unknown))}"] * bool(unknown)
            raise UsageError(f"the prompts of role {role.name!r} do not fit their variables", why="; ".join(said))
        shown = {
            name: part.substitute({name: text}) if (text := variables.get(name, "")).strip() else ""
            for name, part in self.sections.items()
        }
        system, task = (one.substitute({**variables, **shown}) for one in templates)
        return system, task

    def follow_up(self, variables: Mapping[str, str]) -> str:
        """What is told after the first submission; nothing where there is no story."""
        story = variables.get("story", "")
        return Template(self.story).substitute(story=story) if self.story and story.strip() else ""


@dataclass(frozen=True, slots=True)
class Run:
    """What a role run is made of."""

    role: Role
    role_run: str
    definition: Definition
    task: Task
    opening: Shown
    environment: Environment
    termination: Termination
    budget: Budget
    before: Spend
    """What the budget had been charged when the run began, at `started`."""
    started: float


def load(folder: Path) -> Definition:
    """Read a role's folder. Raises UsageError, naming the file, when it is no complete role."""
    try:
        texts = {name: (folder / name).read_text(encoding="utf-8") for name in _FILES}
        table = tomllib.loads(texts["role.toml"])
        role = _role(folder.name, table, texts)
        sections = {name: Template(text) for name, text in table.get("sections", {}).items()}
    except (OSError, ValueError, KeyError, TypeError) as fault:
        raise UsageError(
            f"role {folder.name!r} in {folder} is not complete",
            why=f"{type(fault).__name__}: {fault}",
            next=f"a role has {', '.join(_FILES)}",
        ) from fault
    validate: Validate = run_path(str(folder / "validator.py"))["validate"]
    return Definition(role, sections, validate, table.get("follow_up", ""))


def _role(name: str, table: Mapping[str, Any], texts: Mapping[str, str]) -> Role:
    limits = table["limits"]
    mode = Mode(table["mode"])
    tools = tuple(table["tools"])
    if unknown := set(tools) - {"bash", "edit", "submit"}:
        raise ValueError(f"unknown tools: {', '.join(sorted(unknown))}")
    if "submit" not in tools or ("edit" in tools and mode is Mode.RO):
        raise ValueError("tools must hold submit, and edit only in mode rw")
    return Role(
        name=name,
        mode=mode,
        system=texts["system.md"],
        task=texts["task.md"],
        prompt_digests={file: digest(texts[file]) for file in _FILES},
        tools=tools,
        schema=json.loads(texts["schema.json"]),
        limits=Limits(limits["steps"], limits["tokens"], round(limits["usd"] * NANO), float(limits["seconds"])),
        command_timeout_s=float(table["command_timeout_s"]),
    )
