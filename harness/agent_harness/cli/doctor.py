"""`doctor`: tries everything a run needs, and says beside each fault how to mend it."""

from typing import Annotated

import typer

from agent_harness.cli.opening import Db, Json, Sets
from agent_harness.cli.output import emit, say
from agent_harness.errors import Exit

Fix = Annotated[bool, typer.Option("--fix", help="Build or pull the images that are missing.")]


def doctor(*, fix: Fix = False, sets: Sets = None, db: Db = None, as_json: Json = False) -> int:
    """Try everything a run needs. Exit 0 where all holds, 2 where the configuration cannot be read, else 3."""
    from agent_harness.cli import probes

    loaded, finding = probes.configuration(sets, db)
    findings = [probes.git(), finding]
    if loaded:
        findings += [*probes.project(loaded), *probes.routes(loaded.config), *probes.sandbox(loaded, fix=fix)]
    bad = sum(not one.ok for one in findings)
    code = Exit.USAGE if loaded is None else Exit.INCONCLUSIVE if bad else Exit.OK
    emit({"ok": code is Exit.OK, "findings": findings}, as_json, probes.shown(findings))
    say(f"{bad} of {len(findings)} do not hold" if bad else f"all {len(findings)} hold")
    return code
