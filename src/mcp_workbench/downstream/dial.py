"""From a wish to a channel: what is started, with which environment, and why it could not be."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from typing import Protocol

from mcp_workbench.config.expand import Unexpandable, expand_target
from mcp_workbench.core.spec import HttpEndpoint, ServerSpec, StdioCommand
from mcp_workbench.downstream.commands import resolve
from mcp_workbench.downstream.conversation import Conversation
from mcp_workbench.downstream.link import Link, StdioLink
from mcp_workbench.downstream.processes import Processes
from mcp_workbench.downstream.startable import not_startable, refused_by_system, unusable_folder
from mcp_workbench.wire.child import Child, Launch, running_child

# What programs need to start, and nothing else: the rest of our environment is not theirs.
PASSED_ON = frozenset(
    """
    HOME LOGNAME PATH SHELL TERM USER LANG LANGUAGE TZ TMPDIR TEMP TMP
    HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY http_proxy https_proxy no_proxy all_proxy
    SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE NODE_EXTRA_CA_CERTS
    APPDATA COMSPEC HOMEDRIVE HOMEPATH LOCALAPPDATA PATHEXT PROCESSOR_ARCHITECTURE PROGRAMDATA
    PROGRAMFILES SYSTEMDRIVE SYSTEMROOT USERNAME USERPROFILE WINDIR
    """.split()  # noqa: SIM905 - names, read as a list of words
)
PASSED_ON_PREFIXES = ("LC_", "XDG_")


class Unreachable(Exception):
    """There is no channel to this server; the text is the reason that a user reads."""


def child_environment(own: Mapping[str, str], entry: Mapping[str, str]) -> dict[str, str]:
    """The environment of a child: an allow list of ours, and what its entry says."""
    passed = {
        name: value
        for name, value in own.items()
        if (name in PASSED_ON or name.startswith(PASSED_ON_PREFIXES))
        and not value.startswith("()")  # an exported shell function
    }
    return {**passed, **entry}


def launch_of(target: StdioCommand, environ: Mapping[str, str]) -> Launch:
    """The exact process to start for an expanded command."""
    env = child_environment(environ, dict(target.env))
    cwd = os.path.join(target.folder, target.cwd) if target.cwd else None  # noqa: PTH118 - text in, text out
    if cwd is not None and (wrong := unusable_folder(cwd)):
        raise Unreachable(wrong)
    path = env.get("PATH", os.defpath)
    found = resolve(
        target.command,
        path,
        is_program=_is_program,
        path_separator=os.pathsep,
        separators=os.sep + (os.altsep or ""),
        endings=env.get("PATHEXT", "") if os.name == "nt" else "",
    )
    if found is None:
        raise Unreachable(not_startable(target, path))
    return Launch((found, *target.args), env, cwd)


def _is_program(place: str) -> bool:
    return os.access(place, os.X_OK) and not os.path.isdir(place)  # noqa: PTH112 - text in, text out


class Around(Protocol):
    """What dialling needs of the surroundings."""

    @property
    def environ(self) -> Mapping[str, str]: ...
    @property
    def processes(self) -> Processes: ...


@asynccontextmanager
async def counted(
    started: AbstractAsyncContextManager[Child], spec: ServerSpec, around: Around
) -> AsyncGenerator[Child]:
    """A child counts until it is seen out, which its own block does."""
    with ExitStack() as count:
        async with started as child:
            count.enter_context(around.processes.running(spec.address, child.pid))
            yield child


@asynccontextmanager
async def dial(
    spec: ServerSpec,
    around: Around,
    talk: Conversation,
    ended: Callable[[], None],
) -> AsyncGenerator[Link]:
    """A channel to the server, for as long as the block lasts."""
    environ = around.environ
    try:
        target = expand_target(spec, environ)
    except Unexpandable as error:
        raise Unreachable(error.message) from None
    if isinstance(target, HttpEndpoint):
        async with _dial_http(target, spec, environ, talk, ended) as link:
            yield link
        return
    try:
        launch = launch_of(target, environ)
        started = running_child(launch, talk.receive, ended)
        async with counted(started, spec, around) as child:
            yield StdioLink(child, spec, environ)
    except OSError as error:
        raise Unreachable(refused_by_system(target.command, error)) from None


@asynccontextmanager
async def _dial_http(
    target: HttpEndpoint,
    spec: ServerSpec,
    environ: Mapping[str, str],
    talk: Conversation,
    ended: Callable[[], None],
) -> AsyncGenerator[Link]:
    # A parser of HTTP, TLS and URLs: not before a server behind a URL is used.
    from mcp_workbench.downstream.http_headers import BadHeader
    from mcp_workbench.downstream.http_link import http_link
    from mcp_workbench.wire.addresses import BadAddress
    from mcp_workbench.wire.http_answer import Broken

    try:
        async with http_link(target, spec, environ, talk, ended) as link:
            yield link
    except (BadAddress, BadHeader, Broken) as error:
        raise Unreachable(str(error)) from None
