"""A role as its folder defines it: role.toml, system.md, task.md, schema.json, validator.py."""

from __future__ import annotations

import importlib.util
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any, Protocol

from agent_harness.errors import UsageError
from agent_harness.types import JSON, NANO, Limits, Mode, Role, digest
from agent_harness_roles.evidence import Evidence

_FILES = ("role.toml", "system.md", "task.md", "schema.json", "validator.py")


class Validate(Protocol):
    """What a validator.py has: `validate`. No problems, and the result the run gives; or problems, for the model."""

    def __call__(
        self, submission: JSON, facts: Mapping[str, Any], evidence: Evidence
    ) -> tuple[list[str], dict[str, Any]]:
        """Judge a submission by the facts and by what the run really did. `submission` fits the schema already."""
        ...


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a prompt that stands there only when the variable `when` has a text."""

    when: str
    text: str


@dataclass(frozen=True, slots=True)
class Definition:
    """A role with what only the runner needs of its folder."""

    role: Role
    sections: Mapping[str, Section]
    validate: Validate
    story: str = ""
    """What is said once the first submission was accepted: it has the variable `story`, and asks for another."""

    def opening(self, role: Role, variables: Mapping[str, str]) -> tuple[str, str]:
        """The system and the task prompt. A variable's text is never read as a template.

        Raises UsageError for a variable that is missing, or that no prompt of the role knows."""
        templates = (Template(role.system), Template(role.task))
        required = {name for one in templates for name in one.get_identifiers()} - self.sections.keys()
        parts = [Template(section.text) for section in self.sections.values()]
        optional = {name for part in parts for name in part.get_identifiers()} - required
        later = {"story"} if self.story else set()
        missing, unknown = required - variables.keys(), variables.keys() - required - optional - later
        if missing or unknown:
            said = [f"missing {', '.join(sorted(missing))}"] * bool(missing)
            said += [f"unknown {', '.join(sorted(unknown))}"] * bool(unknown)
            raise UsageError(f"the prompts of role {role.name!r} do not fit their variables", why="; ".join(said))
        values = dict.fromkeys(optional, "") | dict(variables)
        shown = {
            name: Template(section.text).substitute(values) if values.get(section.when, "").strip() else ""
            for name, section in self.sections.items()
        }
        system, task = (one.substitute({**values, **shown}) for one in templates)
        return system, task

    def follow_up(self, variables: Mapping[str, str]) -> str:
        """What is told after the first submission; nothing where there is no story."""
        story = variables.get("story", "")
        return Template(self.story).substitute(story=story) if self.story and story.strip() else ""


def load(folder: Path) -> Definition:
    """Read a role's folder. Raises UsageError, naming the file, when it is no complete role."""
    try:
        texts = {name: (folder / name).read_text(encoding="utf-8") for name in _FILES}
        table = tomllib.loads(texts["role.toml"])
        role = _role(folder.name, table, texts)
        sections = {name: Section(part["when"], part["text"]) for name, part in table.get("sections", {}).items()}
    except (OSError, ValueError, KeyError, TypeError) as fault:
        raise UsageError(
            f"role {folder.name!r} in {folder} is not complete",
            why=f"{type(fault).__name__}: {fault}",
            next=f"a role has {', '.join(_FILES)}",
        ) from fault
    return Definition(role, sections, _validator(folder), table.get("follow_up", ""))


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


def _validator(folder: Path) -> Validate:
    spec = importlib.util.spec_from_file_location(f"agent_harness_role_{folder.name}", folder / "validator.py")
    if spec is None or spec.loader is None:
        raise UsageError(f"cannot load {folder / 'validator.py'}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    validate: Validate = module.validate
    return validate
