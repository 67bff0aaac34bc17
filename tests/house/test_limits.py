"""The limits that docs/security.md names are those of the program."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_workbench.core import raw_json, spec
from mcp_workbench.daemon import control, joined_hosts
from mcp_workbench.gateway import sign_ins
from mcp_workbench.server.http import front, resource_server, sign_in_pages
from mcp_workbench.transport import jsonrpc
from mcp_workbench.transport.http import client, messages, reading, server
from mcp_workbench.upstream import pool, subscriptions
from mcp_workbench.upstream.oauth import sign_in

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text("utf-8")
SMALL = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight")
ORDINAL = {8: "eighth"}


def size(count: int) -> str:
    """As people write it: `64 KiB`."""
    power = (count.bit_length() - 1) // 10
    assert count % (1 << 10 * power) == 0, count
    return f"{count >> 10 * power} {('bytes', 'KiB', 'MiB')[power]}"


TABLE = {
    "request head": f"{size(reading.HEAD_BYTES)}, {messages.HEAD_LINES} headers,"
    f" {reading.HEAD_TIME:g} seconds",
    "pipelined requests": f"{server.PIPELINED} per connection",
    "bodies being received, all connections": f"{server.BODIES} \N{MULTIPLICATION SIGN} `limits.messageBytes`",
    "connections": f"{server.CONNECTIONS:,}, or half",
    "sessions": f"{spec.SESSIONS:,}, shared evenly between tokens;"
    f" one in {SMALL[resource_server.SHARE]} for a person",
    "access tokens that wait for the issuer": f"{front.UNDECIDED} requests,"
    f" {resource_server.WAITING} introspections",
    'sign-in links (`"scope": "principal"`)': f"{sign_ins.MOST_OF_ONE} open ones of a person,"
    f" {sign_ins.MOST_LINKS} in all, {sign_in.LIFETIME / 60:g} minutes, {sign_ins.TRIES} wrong proofs;"
    f" forms of {size(sign_in_pages.LARGEST)}, {sign_in_pages.VISITORS} visits at once",
    'connections to a `"scope": "principal"` server': f"{pool.MOST_PRINCIPALS}",
    'processes of a `"scope": "session"` server': "one per legacy session; for the 2026-07-28 hosts of one token"
    f" {SMALL[pool.MOST_CONNECTIONS]} with the same capabilities, {pool.MOST_PER_PRINCIPAL} in all",
    "resources of one server that hosts subscribe to": f"{subscriptions.MOST_RESOURCES:,} with"
    f" {size(subscriptions.MOST_BYTES)} of URIs; one session or stream has an {ORDINAL[subscriptions.ONE_HOST]}",
    "JSON": f"{raw_json.MOST_MEMBERS:,} members in an object, {raw_json.MOST_ELEMENTS:,} elements in a list,"
    f" {jsonrpc.BATCH:,} messages in a batch",
    "a server's HTTP response": f"{size(client.HEAD_BYTES)} and {client.HEAD_LINES} headers,"
    f" {client.INTERIM} interim responses",
}
SENTENCES = (
    (
        f"A request may have {size(control.MOST_REQUEST)}, {control.MOST_FIELDS:,} fields and paths of"
        f" {size(joined_hosts.LONGEST_FIELD)}, each later message {size(control.MOST_LATER)}."
    ),
    (
        f"Strangers older than {SMALL[int(server.NEW)]} seconds may hold at most one {ORDINAL[server.STRANGERS]}"
        " of the connections."
    ),
)


@pytest.mark.parametrize("limit", TABLE)
def test_a_limit_of_the_table_is_that_of_the_program(limit: str) -> None:
    rows = dict(line.strip("| ").split(" | ")[:2] for line in PAGE.splitlines() if " | " in line)

    assert rows[limit].startswith(TABLE[limit])


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_limit_in_a_sentence_is_that_of_the_program(sentence: str) -> None:
    assert sentence in " ".join(PAGE.split()).replace("- ", "")


def test_a_body_has_a_minute_or_a_minute_for_each_part() -> None:
    assert f"within a minute, or {size(reading.PACE)} per minute" in PAGE
    assert reading.BODY_TIME == 60.0
