"""`trust`: allow what a project's configuration takes from this machine."""

from typing import Annotated

from agent_harness.cli.opening import Db, Json, Sets, configured, here, opt
from agent_harness.cli.output import emit

Base = Annotated[str, opt(metavar="REF", help="Read harness.toml as a commit has it, as review does.")]


def trust(*, base: Base = "", sets: Sets = None, db: Db = None, as_json: Json = False) -> None:
    """Allow what this project's harness.toml takes from your machine: keys, folders, network. Prints what that is."""
    from agent_harness.cli.review import of_commit
    from agent_harness.config import load
    from agent_harness.config.trust import allow

    if base:
        loaded = load(here(), sets=sets or (), db=db, read=of_commit(base)[1])
    else:
        loaded = configured(sets, db, used=False)
    facts = allow(loaded)
    told = "\n".join(f"allowed: {one}" for one in facts)
    emit(
        {"root": loaded.root, "file": loaded.file, "allowed": facts},
        as_json,
        told or "it takes nothing that needs leave",
    )
