"""`tour`: one host's session with the demo toolbox, shown as it happens on the real protocol."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from textwrap import wrap
from typing import IO, Any, cast

import click
import msgspec

from mcp_workbench import __version__
from mcp_workbench.cli.settings import DONE, Settings, global_options
from mcp_workbench.cli.terminal import about, nearby, plain, say
from mcp_workbench.core.catalogue import estimate_tokens, listed_tokens
from mcp_workbench.core.errors import WorkbenchError

Json = dict[str, Any]

WIDTH = 84  # columns
CONFIG = "workbench-config.json"
REVISION = "2025-11-25"
SESSION_TIMEOUT = 30.0  # seconds for the whole session; it takes two or three
STDERR_TAIL = 10  # lines of its stderr in the error
POLITE = 5.0  # seconds for the workbench to exit after its stdin has closed


@click.command()
@global_options
@click.pass_obj
def tour(settings: Settings) -> int:
    """See in a few seconds what an agent sees, with the demo toolbox.

    Starts the real workbench without any configuration, plays one host's session with it, and says
    what to type next. Nothing is written, nothing stays behind.

    \b
    Example:
      mcp-workbench tour
    """
    try:
        with started_workbench() as host:
            _session(host)
    except SessionFailed as error:
        raise TourFailed(
            f"the tour broke off: {error}", hint="mcp-workbench check --connect"
        ) from None
    _next_steps()
    return DONE


class TourFailed(WorkbenchError):
    """The demo did not work, so something is wrong with the installation."""

    code = "tour_failed"


def _session(host: Client) -> None:
    _head(f"MCP Workbench {__version__}: a tour with the built-in demo")
    _print(
        "The host of an agent (Claude Code, an IDE, …) starts one MCP server, the workbench, instead "
        "of many. This tour is such a host, and all of it really happens."
    )
    instructions = host.hello().get("instructions", "")
    _step(1, "The host says hello, and gets instructions for its agent:")
    _quote(instructions)
    menu = host.request("tools/list", {})["tools"]
    _step(2, f"It asks for tools: not those of every server, but a menu of {len(menu)}:")
    for tool in menu:
        _quote(f"{tool['name']}: {tool['description']}")
    opened = _open(host)
    _use(host)
    _make_mistake(host)
    _cost(instructions, menu, opened)


def _open(host: Client) -> str:
    _step(3, "The agent opens a toolbox. Only now do its servers start:")
    arguments = {"toolbox_name": "demo"}
    _sent("open_toolbox", arguments)
    text = _text(_call(host, "open_toolbox", arguments))
    opened = msgspec.json.decode(text)
    tools: list[Json] = opened["tools"]
    servers = dict.fromkeys(tool["source_server"] for tool in tools)
    _got(f"{opened['servers_connected']} servers connected, {len(tools)} tools with their schemas:")
    for server in servers:
        names = [tool["name"] for tool in tools if tool["source_server"] == server]
        _quote(f"{server}: {', '.join(names)}")
    return text


def _use(host: Client) -> None:
    _step(4, "It uses a tool, named by its toolbox, its server and its own name:")
    arguments = _tool("basics", "add", a=2, b=3)
    _sent("use_tool", arguments)
    _got(_text(_call(host, "use_tool", arguments)))
    _step(5, "A slow tool tells how far it is:")
    arguments = _tool("workshop", "slow", seconds=0.6, steps=3)
    _sent("use_tool", arguments)
    params = {"name": "use_tool", "arguments": arguments}
    result = host.request("tools/call", params, lambda p: _got(f"progress: {p['message']}"))
    _got(_text(result))


def _make_mistake(host: Client) -> None:
    _step(6, "A mistake is answered so that the agent can correct it:")
    arguments = {"toolbox_name": "dmeo"}
    _sent("open_toolbox", arguments)
    result = _call(host, "open_toolbox", arguments)
    _got("error: " + " / ".join(block["text"] for block in result["content"]))


def _cost(instructions: str, menu: list[Json], opened: str) -> None:
    """Prints the figures of `cost demo`."""
    _step(7, "What it costs, in tokens (an estimate):")
    tools: list[Json] = msgspec.json.decode(opened)["tools"]
    direct = sum(map(listed_tokens, tools))
    ours = sum(map(listed_tokens, menu)) + estimate_tokens(instructions)
    hundred = round(direct / len(tools) * 100, -2)
    say(f"   {'in every request':30} {f'{len(tools)} tools':>12} {'100 such tools':>16}")
    say(f"   {'every tool listed directly':30} {about(direct):>12} {about(hundred):>16}")
    say(f"   {'menu and instructions':30} {about(ours):>12} {about(ours):>16}")
    say(f"   and once, when it is needed: opening this toolbox, {about(estimate_tokens(opened))}")


def _next_steps() -> None:
    typed = _as_typed()
    _head("\nWith your own servers")
    rows = (
        ("import", "copy the servers of your hosts, or"),
        ("add time -- uvx mcp-server-time", "add one: a command, a URL, JSON"),
        ("check --connect", "start every server, and see what each offers"),
        ("install HOST", "give it to a host; undo reverts any of this"),
    )
    width = max(len(words) for words, _ in rows)
    for words, what in rows:
        say(f"   {typed} {words:{width}}   {what}")
    say("What a host starts, if you prefer to write its entry yourself:")
    _lines(host_entry())


def host_entry() -> str:
    """Returns what to paste into a host's file, with absolute paths: a host may have another PATH."""
    command, *first = _own_command()
    args = [*first, "serve", "--config", str(Path.cwd() / CONFIG)]
    return (
        '{"mcpServers": {"workbench": {\n'
        f'  "command": {_json(command)},\n'
        f'  "args": {_json(args)}}}}}}}'
    )


def _own_command() -> list[str]:
    beside = Path(sys.executable).with_name("mcp-workbench")
    for candidate in (sys.argv[0], str(beside)):
        path = shutil.which(candidate)
        if path and Path(path).stem == "mcp-workbench":
            return [os.path.abspath(path)]  # noqa: PTH100 - keeps links: they survive an update
    return [sys.executable, "-P", "-m", "mcp_workbench"]


def _as_typed() -> str:
    """Returns the command as the user can type it in this shell."""
    own = _own_command()
    on_path = shutil.which("mcp-workbench")
    return "mcp-workbench" if on_path and [on_path] == own else nearby(" ".join(own))


def _tool(server: str, tool: str, **arguments: float) -> Json:
    return {"tool": {"toolbox": "demo", "server": server, "tool": tool}, "arguments": arguments}


def _call(host: Client, name: str, arguments: Json) -> Json:
    return host.request("tools/call", {"name": name, "arguments": arguments})


def _text(result: Json) -> str:
    return str(result["content"][0]["text"])


def _head(text: str) -> None:
    say(click.style(text, bold=True))


def _step(number: int, text: str) -> None:
    say(f"\n{click.style(f'{number}.', bold=True)} {text}")


def _print(text: str) -> None:
    say("\n".join(wrap(text, WIDTH)))


def _quote(text: str) -> None:
    bar = click.style("│", dim=True)
    for line in text.splitlines():
        for part in wrap(plain(line), WIDTH - 5, drop_whitespace=False) or [""]:
            say(f"   {bar} {part.rstrip()}")


def _lines(text: str) -> None:
    for line in text.splitlines():
        say(f"   {line}")


def _sent(name: str, arguments: Json) -> None:
    under = " " * (len(name) + 6)
    data = _json(arguments).replace(', "arguments"', f',\n{under} "arguments"')
    say(f"   {click.style('→', fg='cyan')} {click.style(name, bold=True)} {data}")


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()


def _got(text: str) -> None:
    say(f"   {click.style('←', fg='green')} {plain(text)}")


class SessionFailed(Exception):
    """The session failed, for this reason."""


class Client:
    """An MCP client over two pipes: one request at a time."""

    def __init__(self, sending: IO[bytes], receiving: IO[bytes]) -> None:
        self._sending = sending
        self._receiving = receiving
        self._last = 0

    def request(
        self, method: str, params: Json, progress: Callable[[Json], None] | None = None
    ) -> Json:
        """Returns the result of a request; progress notifications go to `progress`."""
        self._last += 1
        if progress:
            params = params | {"_meta": {"progressToken": self._last}}
        self._send({"id": self._last, "method": method, "params": params})
        while True:
            message = self._receive()
            if message.get("method") == "notifications/progress" and progress:
                progress(message["params"])
            elif message.get("id") == self._last and "error" in message:
                raise SessionFailed(f"{method} was refused: {message['error'].get('message')}")
            elif message.get("id") == self._last:
                return message["result"]

    def hello(self) -> Json:
        about = {"name": "mcp-workbench-tour", "version": __version__}
        params = {"protocolVersion": REVISION, "capabilities": {}, "clientInfo": about}
        answer = self.request("initialize", params)
        self._send({"method": "notifications/initialized"})
        return answer

    def _send(self, message: Json) -> None:
        try:
            self._sending.write(msgspec.json.encode({"jsonrpc": "2.0"} | message) + b"\n")
            self._sending.flush()
        except OSError:
            raise SessionFailed("the workbench has ended") from None

    def _receive(self) -> Json:
        line = self._receiving.readline()
        if not line:
            raise SessionFailed("the workbench has ended, or did not answer in time")
        try:
            return msgspec.json.decode(line, type=Json)
        except ValueError:
            raise SessionFailed("the workbench sent something that is not JSON-RPC") from None


@contextmanager
def started_workbench() -> Generator[Client, None, None]:
    """Starts the workbench as any host does, but in an empty folder and without a configuration."""
    environ = {k: v for k, v in os.environ.items() if k != "WORKBENCH_CONFIG"}
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as errors:
        environ |= {"XDG_CONFIG_HOME": folder, "APPDATA": folder}  # no configuration is there
        try:
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", "mcp_workbench", "serve"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=folder,
                env=environ,
            )
        except OSError as error:
            raise SessionFailed(str(error)) from None
        watchdog = threading.Timer(SESSION_TIMEOUT, child.kill)
        watchdog.start()
        try:
            yield Client(cast("IO[bytes]", child.stdin), cast("IO[bytes]", child.stdout))
        except SessionFailed as failure:
            errors.seek(0)
            stderr = errors.read().decode(errors="replace").splitlines()[-STDERR_TAIL:]
            raise SessionFailed("\n".join((str(failure), *stderr))) from None
        finally:
            end_child(child)
            watchdog.cancel()


def end_child(child: subprocess.Popen[bytes]) -> None:
    """Let it exit at the end of its input; kill it if it does not."""
    for pipe in (child.stdin, child.stdout):
        with suppress(OSError):
            if pipe:
                pipe.close()
    try:
        child.wait(POLITE)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
