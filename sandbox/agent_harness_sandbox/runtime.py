"""Whether the engine's runc is one whose known escapes its version number does not rule out. A warning: distributions
mend old numbers, and what they mended is read from the package's own changelog where that is here."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from agent_harness.ports import Finding

Version = tuple[int, int, int, int]

FINAL = 999
"""A release among its candidates."""
FIXES: dict[str, tuple[Version, ...]] = {
    "CVE-2024-21626": ((1, 1, 12, FINAL),),
    **dict.fromkeys(
        ("CVE-2025-31133", "CVE-2025-52565", "CVE-2025-52881"), ((1, 2, 8, FINAL), (1, 3, 3, FINAL), (1, 4, 0, 3))
    ),
}
"""Escapes, and the first version of each line of releases that has the fix; later lines all have it."""
PACKAGED = re.compile(r"[+~]|deb\d|ubuntu|\.(?:el|fc|amzn)\d|-r\d")
"""What a distribution's version has and upstream's has not."""
CHANGELOG = Path("/usr/share/doc/runc/changelog.Debian.gz")


def open_escapes(version: str) -> list[str]:
    """The escapes that a version number does not rule out; none for one that cannot be read."""
    found = re.search(r"(\d+)\.(\d+)\.(\d+)(?:[-~]rc\.?(\d+))?", version)
    if found is None:
        return []
    seen = (int(found[1]), int(found[2]), int(found[3]), int(found[4] or FINAL))
    return [cve for cve, fixes in FIXES.items() if not _has(seen, fixes)]


def _has(seen: Version, fixes: tuple[Version, ...]) -> bool:
    own = [fix for fix in fixes if fix[:2] == seen[:2]]
    return seen >= own[0] if own else seen > max(fixes)


def mended(package: str, changelog: Path = CHANGELOG) -> str:
    """What the changelog of exactly this package says; empty where another or none is here."""
    try:
        text = gzip.decompress(changelog.read_bytes()).decode("utf-8", "replace")
    except (OSError, EOFError, gzip.BadGzipFile):
        return ""
    return text if package and text.startswith(f"runc ({package})") else ""


def judge(components: Iterable[Mapping[str, Any]], changelog: Path = CHANGELOG) -> Finding:
    """By what the engine says it is made of. Holds in any case: it is for a person to weigh."""
    for one in components:
        if "runc" in str(one.get("Name")):
            version = str(one.get("Version")).partition("\n")[0].removeprefix("runc version ")
            details = one.get("Details") or {}  # Docker's, or podman's
            package = str(
                details.get("GitCommit") or details.get("Package", "").removeprefix("runc_").rpartition("_")[0]
            )
            told = mended(package, changelog)
            left = [cve for cve in open_escapes(version) if cve not in told]
            if not left:
                return Finding("runtime", True, f"runc {version}")
            may = "; the distribution may have patched it" if PACKAGED.search(f"{version} {package}") else ""
            fix = "take runc 1.2.8, 1.3.3 or later, or see your distribution's changelog for these numbers"
            return Finding("runtime", True, f"runc {version} is older than the fix of {', '.join(left)}{may}", fix)
    return Finding("runtime", True, "the engine names no runc, whose versions are known here")
