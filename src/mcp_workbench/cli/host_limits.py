"""What hosts do with the names of our tools and with our lists, as warnings of `check` and `doctor`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from mcp_workbench.cli.settings import Settings
from mcp_workbench.cli.terminal import glyph, say
from mcp_workbench.core.catalogue import ServerReport, ToolInfo
from mcp_workbench.core.errors import ConfigError, Problem, did_you_mean
from mcp_workbench.core.spec import ServerAddress, Snapshot, generate_tool_name
from mcp_workbench.hosts.files import HostFile, HostUsage, Machine, files_of, this_machine
from mcp_workbench.hosts.limits import long_names, problems_in, unseen_tools
from mcp_workbench.hosts.own_entry import OwnEntry, own_entries_in, same_file
from mcp_workbench.hosts.read import text_of
from mcp_workbench.hosts.table import ENTRY, HOSTS, Host

_SHORTER = 'shorten the names of toolbox or server, or set "toolMode": "proxy"'
_APART = 'hide one with toolFilters, or set "toolMode": "proxy"'


def known_host(name: str) -> Host:
    """Returns the host of this name. Raises HostUsage."""
    if name not in HOSTS:
        hint = did_you_mean(name, list(HOSTS)) or f"one of: {', '.join(HOSTS)}"
        raise HostUsage("unknown_host", f"there is no host '{name}'", hint=hint)
    return HOSTS[name]


def name_warnings(snapshot: Snapshot, reports: Iterable[ServerReport]) -> Iterator[Problem]:
    """Yields warnings about names that are too long for any host."""
    names = _names(snapshot, reports)
    for problem in long_names(names):
        place = _place(snapshot, names[problem.name])
        yield _warning(place, problem.message, _SHORTER, "WB-TOOL-302")


def host_warnings(
    snapshot: Snapshot, reports: Iterable[ServerReport], host: Host, machine: Machine | None = None
) -> Iterator[Problem]:
    """Yields what this host would cut, drop, mix up or not see. Proxy mode has nothing of it."""
    if snapshot.tool_mode != "dynamic":
        return
    entries = own_entries(host, snapshot.origin, machine or this_machine())
    names = _names(snapshot, reports)
    for entry in dict.fromkeys(entry.name for entry in entries) or (ENTRY,):
        for problem in problems_in(host, names, entry):
            code, fix = ("WB-HOST-519", _APART) if problem.is_twin else ("WB-TOOL-302", _SHORTER)
            yield _warning(_place(snapshot, names[problem.name]), problem.message, fix, code)
    if not entries or not all(entry.toolboxes for entry in entries):
        yield from _unseen(snapshot, host)


def print_unseen_tools(
    settings: Settings, snapshot: Snapshot, files: Iterable[HostFile], opened: tuple[str, ...]
) -> None:
    """Warns of hosts that would not see the tools of toolboxes, unless these are open from the start."""
    for file in () if settings.json or settings.quiet or opened else files:
        for problem in _unseen(snapshot, file.host):
            say(f"{glyph('doubtful')} {problem.message}   fix: {problem.fix}", err=True)


def _unseen(snapshot: Snapshot, host: Host) -> Iterator[Problem]:
    message = unseen_tools(host)
    if message and snapshot.tool_mode == "dynamic" and snapshot.naming != "bare":
        fix = 'set "toolMode": "proxy"'
        if not host.import_only:
            fix += f", or open toolboxes from the start: mcp-workbench install {host.id} --toolbox NAME"
        yield _warning("toolMode", message, fix, "WB-HOST-520")


def own_entries(host: Host, config: str, machine: Machine) -> list[OwnEntry]:
    """Returns the entries in the host's files that start us with this configuration."""
    found: list[OwnEntry] = []
    for file in files_of(host, machine) if host.format != "yaml" else ():
        try:
            entries = own_entries_in(file, text_of(file.path) or "", machine)
        except (ConfigError, OSError):  # `doctor` reports it
            continue
        found += [entry for entry in entries if entry.ours and not (entry.off or entry.remote)]
    return [entry for entry in found if not entry.config or _is_same(entry.config, config)]


def _is_same(left: str, right: str) -> bool:
    return bool(right) and same_file(left, Path(right).absolute())


def _names(snapshot: Snapshot, reports: Iterable[ServerReport]) -> dict[str, ServerAddress]:
    """Returns the names that hosts list, each with its server."""
    return {
        info.name
        if snapshot.naming == "bare"
        else generate_tool_name(*_parts(info)): report.address
        for report in reports
        for info in report.tools
    }


def _parts(info: ToolInfo) -> tuple[str, str, str]:
    return info.toolbox_name, info.source_server, info.name


def _place(snapshot: Snapshot, address: ServerAddress) -> str:
    return snapshot.toolbox(address.toolbox).server(address.server).place


def _warning(path: str, message: str, fix: str, code: str) -> Problem:
    return Problem(path, message, fix, code, severity="warning")
