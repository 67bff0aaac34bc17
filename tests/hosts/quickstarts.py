"""The part of docs/hosts.md that is made from the table. `python -m tests.hosts.quickstarts` writes it."""

from __future__ import annotations

import shlex
from pathlib import Path

from mcp_workbench.hosts.limits import LIMITS, HostLimits
from mcp_workbench.hosts.own_entry import own_entry
from mcp_workbench.hosts.plan import Member, add_command, edited
from mcp_workbench.hosts.table import ENTRY, HOSTS, Host

DOCUMENT = Path(__file__).parents[2] / "docs" / "hosts.md"
BEGIN, END = "<!-- made from the table: begin -->\n", "<!-- made from the table: end -->\n"
WORDS = (
    "/home/ada/.local/bin/mcp-workbench",
    "serve",
    "--config",
    "/home/ada/workbench-config.json",
)
SYSTEMS = {"linux": "Linux", "darwin": "macOS", "win32": "Windows"}


def made() -> str:
    """The table of all hosts, their own commands, and our entry as each of them writes it."""
    rows = ["| host | name | files | `install` uses | afterwards |", "|---|---|---|---|---|"]
    rows += [
        f"| {h.title} | `{h.id}` | {'<br>'.join(_files(h))} | {_way(h)} | {_next_step(h)} |"
        for h in HOSTS.values()
    ]
    hosts = [host for host in HOSTS.values() if not host.import_only]
    parts = ["\n".join(rows) + "\n", _limits(), _commands(hosts), _entries(hosts)]
    return "\n".join(parts)


def _limits() -> str:
    """What hosts do with names and lists."""
    head = [
        "### Names of tools, and lists that change",
        "",
        "In dynamic mode. `mcp-workbench check --host HOST` compares the names of your tools with the line of a host, under the",
        "name that our entry has in its file; hosts that are not listed have no limit that we know of. A host that does not read",
        "its list again sees the tools of a toolbox only if the toolbox is open from the start (`install HOST --toolbox NAME`).",
        "",
        "| host | a tool is named | longest name of ours | a longer one | characters | reads a changed list again |",
        "|---|---|---|---|---|---|",
    ]
    rows = [
        f"| {HOSTS[id].title} | `{limits.prefix.format(entry=ENTRY)}NAME` "
        f"| {limits.room() or 'not known'} | {_effect(limits)} | {_others(limits)} "
        f"| {limits.relists or 'not known'} |"
        for id, limits in LIMITS.items()
    ]
    return "\n".join([*head, *rows]) + "\n"


def _effect(limits: HostLimits) -> str:
    return f"the host {limits.effect}" if limits.effect else ""


def _others(limits: HostLimits) -> str:
    return f"`{limits.characters}`; others become `_`" if limits.characters else ""


def _way(host: Host) -> str:
    if host.import_only:
        return f"not supported: {host.import_only}"
    return f"`{host.own.add[0]}`, or the file" if host.own else "the file"


def _next_step(host: Host) -> str:
    return "" if host.import_only else host.next_step


def _files(host: Host) -> list[str]:
    places = {system: _shown(host, system) for system in SYSTEMS}
    if len(set(places.values())) == 1:
        lines = [places["linux"]] if places["linux"] else []
    else:
        lines = [f"{SYSTEMS[system]}: {place}" for system, place in places.items()]
    project = ", ".join(f"`{place}`" for place in dict.fromkeys(host.project))
    return [*lines, *([f"project: {project}"] if project else [])]


def _shown(host: Host, system: str) -> str:
    places = dict.fromkeys(host.user_files(system))
    return ", ".join(f"`{_plain(place)}`" for place in places)


def _plain(place: str) -> str:
    """`{VAR:~/x}/y` as `~/x/y`: where it is unless the variable moves it."""
    while "{" in place:
        head, _, rest = place.partition("{")
        variable, _, tail = rest.partition("}")
        place = head + variable.partition(":")[2] + tail
    return place


def _commands(hosts: list[Host]) -> str:
    commands = [add_command(host, "user", WORDS) for host in hosts]
    lines = "\n".join(shlex.join(command) for command in commands if command)
    return f"### With the host's own command\n\n```sh\n{lines}\n```\n"


def _entries(hosts: list[Host]) -> str:
    """One block for all hosts that write the same."""
    titles: dict[str, list[str]] = {}
    for host in hosts:
        titles.setdefault(_entry(host), []).append(host.title)
    blocks = [f"{', '.join(same)}:\n\n{entry}" for entry, same in titles.items()]
    return "### In the host's file\n\n" + "\n".join(blocks)


def _entry(host: Host) -> str:
    member = Member((*host.keys, ENTRY), own_entry(host, WORDS))
    text = edited("", host.format, [member]).rstrip()
    if host.format == "toml":
        return f"```toml\n{text}\n```\n"
    return f"<!-- not loaded: a host's file -->\n```json\n{text}\n```\n"


def with_made(text: str) -> str:
    """The document with its made part renewed."""
    head, rest = text.split(BEGIN)
    return f"{head}{BEGIN}\n{made()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    DOCUMENT.write_text(with_made(DOCUMENT.read_text("utf-8")), "utf-8")
