"""New entries of the lock file: launch line for people, package, when and by whom it was made."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping

from mcp_workbench import __version__
from mcp_workbench.config.expand import secrets_of
from mcp_workbench.core.lock_states import launch_hash
from mcp_workbench.core.redact import redact
from mcp_workbench.core.spec import HttpEndpoint, LockedServer, ServerSpec, StdioCommand

_EXACT = re.compile(r"[0-9][0-9A-Za-z.+!_-]*")  # a version, not a range
_SCRIPTS = re.compile(r"\.(?:exe|cmd|bat|ps1)$", re.IGNORECASE)
# Options of the runners that are followed by a value.
_WITH_VALUE = {
    "npx": {"-p", "--package", "-c", "--call", "--registry", "--cache", "--userconfig"},
    "uvx": {"--from", "--with", "--python", "-p", "--index", "--index-url", "--extra-index-url",
            "--with-requirements", "--constraints", "-c", "--env-file", "--directory"},
    "docker": {"-e", "--env", "-v", "--volume", "--mount", "-p", "--publish", "--name", "-w",
               "--workdir", "--network", "--net", "-u", "--user", "--env-file", "-l", "--label",
               "--entrypoint", "--platform", "--memory", "-m", "--cpus", "--hostname", "-h",
               "--add-host", "--cap-add", "--cap-drop", "--security-opt", "--tmpfs", "--pull"},
}  # fmt: skip
_SELECTORS = {"npx": ("-p", "--package"), "uvx": ("--from",), "docker": ()}
_CONTAINERS = ("docker", "podman")
_NPX = ("npx", "bunx", "pnpx")


def new_entry(spec: ServerSpec, environ: Mapping[str, str]) -> LockedServer:
    """Returns an entry without any definition."""
    line = launch_line(spec, environ)
    package = launched_package(spec)
    return LockedServer(launch_hash(spec), line, package, recorded=record(environ))


def record(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Returns when and by whom something is recorded, and with which version."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return (("at", at), ("by", _user(environ)), ("version", __version__))


def _user(environ: Mapping[str, str]) -> str:
    for name in ("LOGNAME", "USER", "USERNAME"):
        if environ.get(name):
            return environ[name]
    return str(os.getuid()) if hasattr(os, "getuid") else ""


def launch_line(spec: ServerSpec, environ: Mapping[str, str]) -> str:
    """Returns the launch line as it is written, without secrets."""
    from shlex import join

    target = spec.target
    text = target.url if isinstance(target, HttpEndpoint) else join((target.command, *target.args))
    return redact(text, secrets_of(spec, environ))


def launched_package(spec: ServerSpec) -> str:
    """Returns the package and version that the launch line names; empty if it names no exact version.

    `npm:name@1.2.3`, `pypi:name@1.2.3`, `oci:image@sha256:…`.
    """
    kind, name = named_package(spec)
    if kind == "npm":
        base, _, version = name.rpartition("@")
        return f"npm:{base}@{version}" if base and _EXACT.fullmatch(version) else ""
    if kind == "pypi":
        base, _, version = re.sub("===?", "@", name).partition("@")
        base = re.sub(r"\[[^\[\]]*\]", "", base).strip()
        return f"pypi:{base}@{version.strip()}" if _EXACT.fullmatch(version.strip()) else ""
    return f"oci:{name}" if kind == "oci" and "@sha256:" in name else ""


def named_package(spec: ServerSpec) -> tuple[str, str]:
    """Returns the kind of package that is launched, and how the launch line names it; else two empty texts."""
    target = spec.target
    if not isinstance(target, StdioCommand):
        return "", ""
    program = _SCRIPTS.sub("", re.split(r"[\\/]", target.command)[-1]).lower()
    words = list(target.args)
    if program in _NPX:
        return "npm", _first(words, "npx")
    if program == "uvx":
        return "pypi", _first(words, "uvx")
    if program == "uv" and words[:2] == ["tool", "run"]:
        return "pypi", _first(words[2:], "uvx")
    if program in _CONTAINERS and "run" in words:
        return "oci", _first(words[words.index("run") + 1 :], "docker")
    return "", ""


def _first(words: list[str], runner: str) -> str:
    """Returns the package: what an option selects, else the first word that belongs to no option."""
    words = list(words)
    while words:
        word = words.pop(0)
        name, _, value = word.partition("=")
        if name in _SELECTORS[runner]:
            return value or (words[0] if words else "")
        if word in _WITH_VALUE[runner]:
            words = words[1:]
        elif not word.startswith("-"):
            return word
    return ""
