"""What commands show about sandboxes: which server has which, and what keeps it from being made."""

from collections.abc import Iterator, Mapping

import msgspec

from mcp_workbench.config.expand import Unexpandable, expand_without_secrets, secrets_of
from mcp_workbench.core.bubblewrap import describe
from mcp_workbench.core.errors import Problem
from mcp_workbench.core.redact import redact
from mcp_workbench.core.spec import ResourceLimits, ServerSpec, StdioCommand
from mcp_workbench.upstream.launch import child_environment, program_of
from mcp_workbench.upstream.sandbox import (
    BAD_PATH,
    OPEN_CONFIGURATION,
    SandboxUnavailable,
    confine,
    may_write_configuration,
    missing_paths,
)


class ServerSandbox(msgspec.Struct, frozen=True, rename="camel"):
    """The sandbox of one server, in the JSON of `check`."""

    server: str
    sandbox: str  # as configured: off, auto, process or files
    box: str  # what its process gets here: none, process or files; empty if it can't be started
    about: str
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    hide: tuple[str, ...] = ()
    network: bool = True
    memory_bytes: int = 0
    processes: int = 0
    open_files: int = 0

    def __str__(self) -> str:
        return f"{self.server} {self.about}"


class SandboxReport(msgspec.Struct, frozen=True):
    """A sandbox, and what is wrong with it."""

    document: ServerSandbox
    problems: tuple[Problem, ...] = ()


def sandbox_report(spec: ServerSpec, environ: Mapping[str, str]) -> SandboxReport:
    """Returns what is known of a server's sandbox. Tries bubblewrap, and starts no server."""
    assert isinstance(spec.target, StdioCommand)  # noqa: S101 - others have none
    try:
        target = expand_without_secrets(spec, environ)
    except Unexpandable:  # a warning of its own
        return SandboxReport(_document(spec, spec.target, ""))
    assert isinstance(target, StdioCommand)  # noqa: S101
    env, secrets = child_environment(environ, target), secrets_of(spec, environ)
    box, problems = "", list(_missing(spec, target, environ))
    if may_write_configuration(target, environ):
        message = f"server '{spec.address}' may write the folder of this configuration"
        fix = "keep the configuration in another folder, or grant less"
        problems.append(_warning(f"{spec.place}.sandbox.write", message, fix, OPEN_CONFIGURATION))
    try:
        # A program that does not exist has a warning of its own.
        box = confine(target, (program_of(target, env) or "/bin/sh",), env, environ).box
    except SandboxUnavailable as error:
        message = f"server '{spec.address}' can't be started: sandbox: {error.message}"
        problems.append(_warning(f"{spec.place}.sandbox", message, error.fix, error.code))
    masked = tuple(
        msgspec.structs.replace(
            problem, message=redact(problem.message, secrets), fix=redact(problem.fix, secrets)
        )
        for problem in problems
    )
    return SandboxReport(_masked(_document(spec, target, box), secrets), masked)


def _masked(document: ServerSandbox, secrets: Mapping[str, str]) -> ServerSandbox:
    """Returns the document without values of variables in its paths."""
    lists = {
        key: tuple(redact(path, secrets) for path in getattr(document, key))
        for key in ("read", "write", "hide")
    }
    return msgspec.structs.replace(document, **lists)


def _document(spec: ServerSpec, target: StdioCommand, box: str) -> ServerSandbox:
    sandbox, limits = target.sandbox, target.resources
    return ServerSandbox(
        str(spec.address),
        sandbox.kind,
        box,
        _about(target, box),
        sandbox.read,
        sandbox.write,
        sandbox.hide,
        sandbox.kind != "files" or sandbox.network,
        limits.memory_bytes,
        limits.processes,
        limits.open_files,
    )


def _about(target: StdioCommand, box: str) -> str:
    """`process`, `auto: none`, `files, 1 to read, 1 to write, no network`, `limits only`."""
    if target.sandbox.kind == "off":
        words = "no sandbox"
    elif target.sandbox.kind == "auto":
        words = f"auto: {box or 'unknown'}"
    else:
        words = describe(target.sandbox)
    if not box:
        words += " (can't be made)"
    return words if target.resources == ResourceLimits() else f"{words}, with limits"


def _missing(
    spec: ServerSpec, target: StdioCommand, environ: Mapping[str, str]
) -> Iterator[Problem]:
    for key, index, path in missing_paths(target, environ):
        message = f"'{path}' does not exist and is left out"
        if key == "hide":
            message = f"'{path}' does not exist, so it is not hidden if it is made later"
        place = f"{spec.place}.sandbox.{key}[{index}]"
        yield _warning(place, message, "create it, or remove it", BAD_PATH)


def _warning(path: str, message: str, fix: str, code: str) -> Problem:
    return Problem(path, message, fix, code, severity="warning")
