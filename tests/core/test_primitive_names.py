"""Names and URIs of many servers' offers: unique, and always led back to their owner."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.core.primitive_names import (
    SCHEME,
    Primitive,
    PrimitiveRef,
    ServerPrimitives,
    addressed,
    matches,
    owner_by_template,
    owners_of_flat_name,
    read_addressed,
    read_primitives,
    shown_uris,
)
from mcp_workbench.core.spec import ServerAddress, generate_tool_name

names = st.from_regex(r"[A-Za-z0-9_-]{1,8}", fullmatch=True)
addresses = st.builds(ServerAddress, names, names)
uris = st.one_of(
    st.text(min_size=1),
    st.from_regex(r"[a-z]{1,5}://[a-z/?#%.{}]{0,12}", fullmatch=True),
    st.builds(PrimitiveRef, addresses, st.text(min_size=1)).map(addressed),
)


def shelf(address: ServerAddress, *keys: str) -> ServerPrimitives:
    return ServerPrimitives(address, {key: Primitive(key, b"{}") for key in keys})


@st.composite
def some_shelves(draw: st.DrawFn) -> list[ServerPrimitives]:
    found = draw(st.lists(addresses, max_size=5, unique=True))
    return [shelf(address, *draw(st.lists(uris, max_size=4))) for address in found]


ONE, TWO = ServerAddress("dev", "one"), ServerAddress("dev", "two")


@given(addresses, uris)
def test_an_addressed_uri_leads_back_to_its_owner(address: ServerAddress, uri: str) -> None:
    owner = PrimitiveRef(address, uri)

    assert read_addressed(addressed(owner)) == owner


@given(some_shelves())
def test_every_resource_is_shown_under_a_uri_of_its_own(found: list[ServerPrimitives]) -> None:
    shown = shown_uris(found)

    everything = [PrimitiveRef(one.address, key) for one in found for key in one.offers]
    assert list(shown.values()) == everything
    for uri, owner in shown.items():
        if uri.startswith(SCHEME):
            assert read_addressed(uri) == owner
        else:
            assert next(one for one in everything if one.key == uri) == owner


def test_a_uri_is_kept_while_it_is_unique() -> None:
    inner = "mcp-workbench://a/b/x:y"  # of a workbench behind this one

    assert list(shown_uris([shelf(ONE, "x:y", inner), shelf(TWO, "x:y", "z:")])) == [
        "x:y",
        f"mcp-workbench://dev/one/{inner}",
        "mcp-workbench://dev/two/x:y",
        "z:",
    ]


@pytest.mark.parametrize("uri", ["x:y", SCHEME, f"{SCHEME}a/b", f"{SCHEME}a/b/", f"{SCHEME}/b/c"])
def test_what_names_no_server_is_not_addressed(uri: str) -> None:
    assert read_addressed(uri) is None


@given(st.lists(addresses, unique=True), st.text(min_size=1), st.data())
def test_a_prompt_s_flat_name_leads_back_to_its_owner(
    servers: list[ServerAddress], prompt: str, data: st.DataObject
) -> None:
    if not servers:
        assert owners_of_flat_name(prompt, servers) == []
        return
    owner = data.draw(st.sampled_from(servers))
    name = generate_tool_name(owner.toolbox, owner.server, prompt)

    assert PrimitiveRef(owner, prompt) in owners_of_flat_name(name, servers)


def test_a_flat_name_is_ambiguous_only_where_names_hold_the_separator() -> None:
    servers = [ServerAddress("a", "b"), ServerAddress("a", "b__c"), ServerAddress("x", "y")]

    assert owners_of_flat_name("a__b__c__d", servers) == [
        PrimitiveRef(servers[0], "c__d"),
        PrimitiveRef(servers[1], "d"),
    ]
    assert owners_of_flat_name("a__b__", servers) == []


# Templates


@pytest.mark.parametrize(
    ("template", "uri", "fits"),
    [
        ("note://{id}", "note://7", True),
        ("note://{id}", "note://", False),
        ("note://{id}", "note://a/b", False),
        ("note://{id}/x", "note://a/x", True),
        ("note://{id}/x", "note://a/y", False),
        ("note://{+path}", "note://a/b", True),
        ("note://{+path}", "note://", True),
        ("note:/{/a,b}", "note://x/y", True),
        ("note://x{?q,r}", "note://x?q=1&r=2", True),
        ("note://x{?q}", "note://x", True),
        ("{a}{b}", "ab", True),
        ("{a}{b}", "a", False),
        ("a{x}a{y}a", "aaaaa", True),
        ("a{x}b{y}c", "a-b-b-c", True),
        ("note://plain", "note://plain", True),
        ("note://plain", "note://other", False),
        ("odd{", "odd{", True),
    ],
)
def test_a_template_matches_what_it_may_be_expanded_to(template: str, uri: str, fits: bool) -> None:
    assert matches(template, uri) is fits


pieces = st.lists(st.sampled_from(["a", "/", "b", "{x}", "{+x}"]), max_size=6).map("".join)


@given(pieces, st.text("ab/", max_size=8))
def test_matching_agrees_with_a_regular_expression(template: str, uri: str) -> None:
    pattern = re.escape(template).replace(r"\{x\}", "[^/]+").replace(r"\{\+x\}", ".*")

    assert matches(template, uri) == (re.fullmatch(pattern, uri) is not None)


def test_matching_takes_its_time_in_proportion() -> None:
    assert not matches("{+a}" * 30 + "!", "a" * 5000)


def test_the_first_server_with_a_fitting_template_is_the_owner() -> None:
    found = [shelf(ONE, "a:{x}"), shelf(TWO, "a:{+x}")]

    assert owner_by_template("a:b", found) == PrimitiveRef(ONE, "a:b")
    assert owner_by_template("a:b/c", found) == PrimitiveRef(TWO, "a:b/c")
    assert owner_by_template("a:{+x}", found) == PrimitiveRef(ONE, "a:{+x}")  # by its own pattern
    assert owner_by_template("b:c", found) is None


# Reading


def test_an_odd_offer_costs_no_other() -> None:
    raws = [b'{"uri":"a:b","n":1.0 }', b'{"uri":7}', b'{"uri":""}', b"[]", b"{}", b'{"uri":"a:b"}']

    found = read_primitives("resources", [msgspec.Raw(raw) for raw in raws])

    assert found == {"a:b": Primitive("a:b", b'{"uri":"a:b","n":1.0}')}
