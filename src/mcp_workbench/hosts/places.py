"""From the table's places to files of this machine."""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from mcp_workbench.hosts.table import HOSTS, Host

Scope = Literal["user", "project"]

_VARIABLE = re.compile(r"\{(\w+):([^}]*)\}")


class Surroundings(msgspec.Struct, frozen=True):
    """Where we are: all that a place depends on."""

    home: Path
    folder: Path
    environ: Mapping[str, str]
    system: str = sys.platform


class HostFile(msgspec.Struct, frozen=True):
    """One file of one host."""

    host: Host
    path: Path
    scope: Scope


def here() -> Surroundings:
    return Surroundings(Path.home(), Path.cwd(), os.environ)


def files_of(host: Host, around: Surroundings) -> Iterator[HostFile]:
    """Every file of this host that exists."""
    seen: set[Path] = set()
    for scope in ("user", "project"):
        for path in candidates(host, scope, around):
            if path.is_file() and path not in seen:
                seen.add(path)
                yield HostFile(host, path, scope)


def all_files(around: Surroundings) -> list[HostFile]:
    return [file for host in HOSTS.values() for file in files_of(host, around)]


def file_to_change(host: Host, scope: Scope, around: Surroundings) -> HostFile | None:
    """The file that an entry goes into, whether it exists or not; None where the host has none."""
    paths = list(candidates(host, scope, around))
    if not paths:
        return None
    existing = (path for path in paths if path.is_file())
    return HostFile(host, next(existing, paths[-1]), scope)


def candidates(host: Host, scope: Scope, around: Surroundings) -> Iterator[Path]:
    if scope == "project":
        yield from (around.folder / place for place in host.project)
        return
    for place in host.user_files(around.system):
        path = _resolved(place, around)
        if "*" in path.name or "*" in str(path):
            anchor = Path(path.anchor)
            yield from sorted(anchor.glob(str(path.relative_to(anchor))))
        else:
            yield path


def _resolved(place: str, around: Surroundings) -> Path:
    filled = _VARIABLE.sub(lambda found: around.environ.get(found[1]) or found[2], place)
    if filled.startswith("~"):
        return around.home / filled[1:].lstrip("/")
    return Path(filled)


def shown(path: Path, around: Surroundings) -> str:
    """The path as people write it: from here, else from home."""
    for base, prefix in ((around.folder, ""), (around.home, "~/")):
        try:
            return f"{prefix}{path.relative_to(base).as_posix()}"
        except ValueError:
            continue
    return str(path)
