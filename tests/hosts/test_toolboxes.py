"""Which toolbox a server is proposed for, and how a toolbox is described."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.hosts.merge import ImportChoice
from mcp_workbench.hosts.read import HostServer
from mcp_workbench.hosts.toolboxes import LONGEST, ServerSummary, description, purpose_of


def choice(name: str, entry: dict[str, Any]) -> ImportChoice:
    return ImportChoice(HostServer(name, "cursor", "mcp.json", entry), name, entry)


def npx(*args: str) -> dict[str, Any]:
    return {"command": "npx", "args": ["-y", *args]}


@pytest.mark.parametrize(
    ("name", "entry", "purpose"),
    [
        ("fs", npx("@modelcontextprotocol/server-filesystem", "/home/ada/notes"), "code"),
        ("hub", npx("@modelcontextprotocol/server-github@latest"), "code"),
        ("BraveSearch", npx("x"), "web"),
        ("pw", npx("@playwright/mcp@latest", "--headless"), "web"),
        ("db", {"command": "uvx", "args": ["postgres-mcp", "--access-mode=restricted"]}, "data"),
        ("x", {"command": "docker", "args": ["run", "-i", "--rm", "mcp/grafana"]}, "cloud"),
        ("issues", {"url": "https://mcp.linear.app/sse"}, "work"),
        ("ask", {"url": "https://mcp.deepwiki.com/mcp"}, "knowledge"),
        ("y", {"command": "/usr/bin/python3", "args": ["/home/ada/slack/weather.py"]}, "everyday"),
        ("acme", {"command": "/opt/acme/bin/acme-mcp"}, ""),
        ("acme", {"url": "https://[broken"}, ""),
    ],
)
def test_names_packages_and_urls_say_what_a_server_is_for(
    name: str, entry: dict[str, Any], purpose: str
) -> None:
    assert purpose_of(choice(name, entry)) == purpose


def test_a_description_leaves_no_server_out_before_its_words() -> None:
    servers = [
        ServerSummary(f"server-{n}", instructions="Does many things. " * 9) for n in range(9)
    ]

    few = description("About", servers[:2])
    many = description("About", servers)

    assert few == "About: server-0 (Does many things), server-1 (Does many things)"
    assert all(server.name in many for server in servers)


def test_of_very_many_servers_the_rest_is_counted() -> None:
    text = description("About", [ServerSummary(f"a-long-name-{n}") for n in range(30)])

    assert text.startswith("About: a-long-name-0, a-long-name-1, ")
    shown = text.count("a-long-name-")
    assert text.endswith(f", and {30 - shown} more")


@pytest.mark.parametrize(
    ("instructions", "words"),
    [
        ("A Model Context Protocol (MCP) server for weather data.", " (Weather data)"),
        ("This is an MCP server that reads mail. And more.", " (Reads mail)"),
        ("# Name\n\n**Use it** when `asked`; not before", " (Use it when asked)"),
        ("Forgets\u202eeverything\x07", " (Forgets everything)"),
        ("MCP server", ""),
        ("\n\n", ""),
    ],
)
def test_the_beginning_of_the_instructions_is_quoted(instructions: str, words: str) -> None:
    assert description("", [ServerSummary("name", "", instructions)]) == f"name{words}"


@given(
    st.text(max_size=100),
    st.lists(
        st.builds(
            ServerSummary,
            st.from_regex(r"[a-z][a-z0-9-]{0,40}", fullmatch=True),
            st.text(max_size=60),
            st.text(max_size=300),
        ),
        min_size=1,
        max_size=30,
    ),
)
def test_a_description_is_one_short_line(about: str, servers: list[ServerSummary]) -> None:
    text = description("About it" if about else "", servers)

    assert 0 < len(text) <= LONGEST
    assert text.isprintable()


@pytest.mark.cost
@pytest.mark.parametrize("text", ["word ", "\x1b[2J", "(", "aB", "s\n"])
def test_instructions_of_megabytes_cost_no_time(text: str) -> None:
    began = time.process_time()
    line = description("", [ServerSummary("s", text * (4 << 20), text * (4 << 20))])

    assert time.process_time() - began < 0.5
    assert line.isprintable()
    assert len(line) <= LONGEST
