"""Lock files and definitions: any bytes are entries or a problem; what is equal has an equal hash."""

# What is made up has no types.
# pyright: basic

from __future__ import annotations

import json

from hypothesis import strategies as st

from mcp_workbench.config.lock_file import encode_lock, parse_lock
from mcp_workbench.core.definition_hash import canonical_form, definition_hash
from mcp_workbench.core.spec import LockedServer
from tests.fuzz.effort import fuzzed
from tests.fuzz.material import mutated, values, writers

hashes = st.binary(min_size=32, max_size=32).map(lambda data: f"sha256:{data.hex()}")
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
lists = st.dictionaries(names, hashes, max_size=3)
kinds = st.dictionaries(st.sampled_from(["tools", "prompts", "templates"]), lists, max_size=3)
filled = kinds.map(lambda found: {kind: one for kind, one in found.items() if one})
servers = st.builds(
    LockedServer,
    launch=hashes,
    line=names,
    package=names,
    capabilities=st.dictionaries(st.just("tools"), st.lists(names, min_size=1).map(tuple)),
    lists=kinds,
    rejected=filled,
    gone=filled,
    note=names,
)
files = st.dictionaries(names, servers, max_size=3)


@fuzzed(files)
def test_what_is_written_reads_back(entries) -> None:
    text = encode_lock(entries)
    lock = parse_lock("x", text)

    assert lock.problem is None
    assert lock.servers == entries
    assert encode_lock(lock.servers) == text
    assert all(line.isprintable() for line in text.decode().splitlines())


@fuzzed(mutated(files.map(encode_lock)))
def test_a_damaged_file_is_entries_or_a_problem(raw) -> None:
    lock = parse_lock("x", raw)

    if lock.problem is not None:
        assert lock.servers == {}
        assert lock.problem.message.isprintable()
    else:
        assert parse_lock("x", encode_lock(lock.servers)).servers == lock.servers


@fuzzed(values, writers, writers)
def test_the_spelling_of_a_definition_does_not_count(value, one, two) -> None:
    first, second = one(value), two(value)
    if canonical_form(first) is not None and canonical_form(second) is not None:
        assert definition_hash(first) == definition_hash(second)


@fuzzed(mutated(values.map(lambda value: json.dumps(value).encode())))
def test_any_bytes_have_a_hash(raw) -> None:
    assert definition_hash(raw) == definition_hash(bytes(raw))
