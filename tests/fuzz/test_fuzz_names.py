"""Names, addresses and patterns: each leads to one thing, and back."""

# What is made up has no types.
# pyright: basic

from __future__ import annotations

import re
from fnmatch import fnmatchcase

from hypothesis import strategies as st

from mcp_workbench.config.schema import AMBIGUOUS, NAME
from mcp_workbench.core.primitive_names import (
    Primitive,
    PrimitiveRef,
    ServerPrimitives,
    addressed,
    matches,
    read_addressed,
    shown_uris,
)
from mcp_workbench.core.spec import (
    ServerAddress,
    ToolIdentifier,
    generate_tool_name,
    parse_tool_name,
    tool_filter,
)
from mcp_workbench.transport.http.messages import decode_value, encode_value
from mcp_workbench.transport.http.urls import BadUrl, parse_url, proxy_for
from tests.fuzz.effort import fuzzed, size
from tests.fuzz.material import mutated


def allowed(name: str) -> bool:
    """Would dynamic mode take it as the name of a toolbox or a server?"""
    return bool(re.fullmatch(NAME, name)) and not re.search(AMBIGUOUS, name)


any_names = st.text(st.sampled_from("ab_-A0"), max_size=6) | st.text(max_size=3)
names = any_names.filter(allowed)
tools = st.text(st.sampled_from("ab_/.é "), min_size=1, max_size=6) | st.text(
    min_size=1, max_size=4
)
identifiers = st.builds(ToolIdentifier, names, names, tools)


@fuzzed(st.lists(identifiers, max_size=6, unique=True))
def test_flat_names_are_as_different_as_what_they_name(found: list[ToolIdentifier]) -> None:
    flat = [generate_tool_name(one.toolbox, one.server, one.tool) for one in found]

    assert len(set(flat)) == len(found)
    assert [parse_tool_name(name) for name in flat] == found


@fuzzed(st.text(st.sampled_from("a_b-"), max_size=size(12)) | st.text(max_size=8))
def test_any_text_is_one_flat_name_or_none(text: str) -> None:
    found = parse_tool_name(text)

    if found is None:
        return
    assert generate_tool_name(found.toolbox, found.server, found.tool) == text
    assert found.tool
    assert "__" not in found.toolbox
    assert "__" not in found.server


@fuzzed(identifiers, identifiers)
def test_no_server_s_prefix_is_another_one_s(one: ToolIdentifier, other: ToolIdentifier) -> None:
    prefixes = [generate_tool_name(i.toolbox, i.server, "") for i in (one, other)]

    if one.address != other.address:
        assert not prefixes[0].startswith(prefixes[1])
        assert not prefixes[1].startswith(prefixes[0])


uris = st.text(max_size=6) | st.sampled_from(
    ["file:///a", "file:///a/{b}", "mcp-workbench://a/b/c", "x:"]
)
shelves = st.lists(
    st.tuples(st.builds(ServerAddress, names, names), st.lists(uris.filter(bool), max_size=4)),
    max_size=4,
    unique_by=lambda pair: pair[0],
)


@fuzzed(shelves)
def test_every_resource_has_one_uri_that_leads_back(
    found: list[tuple[ServerAddress, list[str]]],
) -> None:
    offered = [
        ServerPrimitives(address, {key: Primitive(key, b"{}") for key in keys})
        for address, keys in found
    ]
    owners = [PrimitiveRef(address, key) for address, keys in found for key in dict.fromkeys(keys)]

    shown = shown_uris(offered)

    assert sorted(map(str, shown.values())) == sorted(map(str, owners))
    for uri, owner in shown.items():
        assert uri == owner.key or read_addressed(uri) == owner
        assert read_addressed(addressed(owner)) == owner


pieces = st.sampled_from(["a", "/", "{x}", "{+x}", "{?q}", "b", "%41", "{", "}"])


@fuzzed(
    st.lists(pieces, max_size=6).map("".join),
    st.lists(pieces, max_size=6).map("".join),
)
def test_a_template_matches_as_a_regular_expression_would(template: str, uri: str) -> None:
    parts = re.split(r"(\{[+#./;?&]?[^{}]*\})", template)
    written = ["[^/]+", ".*"]
    pattern = "".join(
        re.escape(part) if n % 2 == 0 else written[part[1] in "+#./;?&"]
        for n, part in enumerate(parts)
    )

    assert matches(template, uri) == bool(re.fullmatch(pattern, uri, re.DOTALL))


globs = st.text(st.sampled_from("ab*?[]!-_"), max_size=6)


@fuzzed(st.lists(globs, max_size=4), globs)
def test_filters_show_what_their_patterns_say(patterns: list[str], tool: str) -> None:
    def hit(pattern: str) -> bool:
        return pattern == tool or fnmatchcase(tool, pattern)

    kept = [p for p in patterns if not p.startswith("!")]
    dropped = [p[1:] for p in patterns if p.startswith("!")]
    expected = (any(map(hit, kept)) or (not kept and bool(dropped))) and not any(map(hit, dropped))

    assert tool_filter(tuple(patterns)).shows(tool) is expected


urls = st.sampled_from(
    ["http://h/p?q=1#f", "https://u:p%0d%0a@h:8443/ä b", "http://[::1]:9/", "http://bücher.example/", "HTTP://H", "http://h:0/"]
).map(str.encode)  # fmt: skip


@fuzzed(
    mutated(urls),
    st.text(max_size=8) | mutated(urls).map(lambda u: u.decode("utf-8", "replace")),
)
def test_any_url_is_an_address_that_fits_on_a_request_line(url: bytes, reference: str) -> None:
    try:
        here = parse_url(url.decode("utf-8", "replace"))
    except BadUrl:
        return
    found = [here]
    try:
        found.append(here.joined(reference))
        found.append(proxy_for(here, {"http_proxy": reference, "no_proxy": "x:1,.y"}) or here)
    except BadUrl:
        pass
    for address in found:
        line = f"{address.target} {address.authority}"
        assert re.fullmatch(r"[!-~]+ [!-~]+", line), line
        assert 0 < address.port < 65536
        assert parse_url(f"{address.origin}{address.target}").origin == address.origin


@fuzzed(st.text(max_size=10), st.binary(max_size=20))
def test_a_header_s_value_comes_back(text: str, value: bytes) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    spelled = encode_value(text)

    assert re.fullmatch(r"[ -~]*", spelled)
    assert decode_value(spelled.encode()) == text
    decode_value(b"=?base64?" + value + b"?=")
    decode_value(value)
