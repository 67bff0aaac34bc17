"""What tells one server from another, whatever it is called, without the value of any secret."""

from __future__ import annotations

import os
from collections.abc import Mapping

from mcp_workbench.config.expand import expand, names_a_secret, references, strings_of
from mcp_workbench.core.spec import HttpEndpoint, ServerSpec, StdioCommand

# These find their program elsewhere than in the folder that they are started in.
_RUNNERS = ("npx", "bunx", "uvx", "pipx", "docker", "podman", "dnx")


def likeness(spec: ServerSpec, environ: Mapping[str, str], cwd: str) -> tuple[str, ...]:
    """Who has the same one offers the same, as far as anybody can know without asking.

    Command, arguments, folder and URL count with the values of their variables, unless the name of a
    variable says that it holds a secret. `env` and `headers` count as they are written: a token that
    changes every hour is another way into the same server.
    """
    target = spec.target
    texts: list[str] = [spec.era]
    for path, text in sorted(strings_of(target), key=lambda pair: tuple(map(str, pair[0]))):
        plain = text if path[0] in ("env", "headers") else _plain(text, environ)
        texts += [".".join(map(str, path)), plain]
    if isinstance(target, HttpEndpoint):
        return ("url", target.transport, *texts)
    return ("command", _folder(target, environ, cwd), *texts)


def _plain(text: str, environ: Mapping[str, str]) -> str:
    named = [name for name in references(text) if not names_a_secret(name)]
    return expand(text, {name: environ[name] for name in named if name in environ}).text


def _folder(target: StdioCommand, environ: Mapping[str, str], cwd: str) -> str:
    """The folder that it is started in, where that can make it another server."""
    given = _plain(target.cwd, environ)
    folder = os.path.join(target.folder, given) if given else cwd  # noqa: PTH118
    if given or os.path.basename(target.command) not in _RUNNERS:  # noqa: PTH119
        return folder
    # `npx -y some-server .` is about this folder after all.
    args = [_plain(argument, environ) for argument in target.args]
    relative = [argument for argument in args if argument and not os.path.isabs(argument)]  # noqa: PTH117
    here = any(os.path.lexists(os.path.join(folder, argument)) for argument in relative)  # noqa: PTH118
    return folder if here else ""
