"""The part of docs/hosts.md that is made from the table. `python -m tests.hosts.quickstarts` writes it."""

from __future__ import annotations

import shlex
from pathlib import Path

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
    """The table of all hosts, then one section for each that we write to."""
    rows = ["| host | name here | its files | how we get in |", "|---|---|---|---|"]
    rows += [
        f"| {h.title} | `{h.id}` | {'<br>'.join(_files(h))} | {_way(h)} |" for h in HOSTS.values()
    ]
    sections = [_section(host) for host in HOSTS.values() if not host.import_only]
    return "\n".join(rows) + "\n\n" + "\n".join(sections)


def _way(host: Host) -> str:
    if host.import_only:
        return f"not written: {host.import_only}"
    return f"`{host.own.add[0]}`, else its file" if host.own else "its file"


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


def _section(host: Host) -> str:
    lines = [f"### {host.title}\n", f"    mcp-workbench install {host.id}\n"]
    if command := add_command(host, "user", WORDS):
        lines.append(f"By hand, with its own command:\n\n```sh\n{shlex.join(command)}\n```\n")
    language = "toml" if host.format == "toml" else "json"
    member = Member((*host.keys, ENTRY), own_entry(host, WORDS))
    place = _plain(host.user_files("linux")[-1])
    lines.append(f"By hand, in `{place}`:\n")
    if language == "json":
        lines.append("<!-- not loaded: a host's file -->")
    lines.append(f"```{language}\n{edited('', host.format, [member]).rstrip()}\n```\n")
    lines.append(f"Then: {host.next_step}.\n")
    return "\n".join(lines)


def with_made(text: str) -> str:
    """The document with its made part renewed."""
    head, rest = text.split(BEGIN)
    return f"{head}{BEGIN}\n{made()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    DOCUMENT.write_text(with_made(DOCUMENT.read_text("utf-8")), "utf-8")
