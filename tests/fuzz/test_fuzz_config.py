"""Configuration files: any text is a snapshot, or findings that point into it."""

# What is made up has no types.
# pyright: basic

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from mcp_workbench.config import jsonc
from mcp_workbench.config.expand import Unexpandable, expand, expand_target, references, secrets_of
from mcp_workbench.config.load import load_config
from mcp_workbench.config.validate import validate
from mcp_workbench.core.errors import ConfigError, Problem
from mcp_workbench.core.redact import SHORTEST, redact
from mcp_workbench.core.spec import HttpEndpoint, Snapshot, StdioCommand
from tests.fuzz.effort import fuzzed, size
from tests.fuzz.material import mutated, strict_json, values, writers

ENVIRON = {"X": "the value of X", "EMPTY": "", "SECRET": "sesame-öffne/dich", "ODD": "a\nb\0c"}
SCRATCH = tempfile.TemporaryDirectory(prefix="fuzz-")

wild = values | st.sampled_from(
    ["${X}", "${NOT_SET}", "${SECRET}", "${X:-y}", "$${", "${", "*", "http://x", "a__b"]
)
names = st.sampled_from(["dev", "a", "a__b", "a_", "a b", "", "ü", "x" * 300, "disabled"])
pairs = st.dictionaries(names | st.sampled_from(["TOKEN", "Authorization"]), wild, max_size=2)
entries = st.fixed_dictionaries(
    {},
    optional={
        "command": st.just("run") | wild,
        "url": st.sampled_from(["http://x/", "https://u:${SECRET}@h?k=${X}"]) | wild,
        "args": st.lists(wild, max_size=3) | wild,
        "env": pairs | wild,
        "headers": pairs | wild,
        "cwd": wild,
        "type": st.sampled_from(["stdio", "sse", "http", "streamable-http", "local"]) | wild,
        "transport": st.sampled_from(["stdio", "sse"]) | wild,
        "era": st.sampled_from(["auto", "modern"]) | wild,
        "scope": st.sampled_from(["shared", "session"]) | wild,
        "toolFilters": st.lists(wild, max_size=2) | wild,
        "timeout": wild,
        "connectTimeout": st.sampled_from([1, 0.5, 1e9, 2**53, 10**400]) | wild,
        "disabled": st.booleans() | wild,
        "cmd": wild,
        "autoApprove": wild,
    },
)
servers = st.dictionaries(names, entries | wild, max_size=2) | wild
boxes = st.fixed_dictionaries({}, optional={"description": wild, "mcpServers": servers, "x": wild})
files = st.fixed_dictionaries(
    {},
    optional={
        "mcpServers": servers,
        "toolboxes": st.dictionaries(names, boxes | wild, max_size=2) | wild,
        "toolMode": st.sampled_from(["proxy", "dynamic"]) | wild,
        "naming": st.sampled_from(["full", "bare"]) | wild,
        "limits": st.dictionaries(st.sampled_from(["messageBytes", "openWait", "callsPerServer"]), wild) | wild,
        "http": st.fixed_dictionaries({}, optional={"token": wild, "allowedHosts": st.lists(wild) | wild}) | wild,
    },
)  # fmt: skip
written = st.builds(lambda write, value: write(value), writers, files) | files.map(
    lambda value: json.dumps(value, indent=1, ensure_ascii=False).encode("utf-8", "replace")
)


def loaded(raw: bytes, *, careful: bool) -> Snapshot | ConfigError:
    file = Path(SCRATCH.name) / "c.json"
    file.write_bytes(raw)
    file.chmod(0o600)
    try:
        return load_config(file, ENVIRON, careful=careful)
    except ConfigError as error:
        return error


def check_place(problem: Problem, raw: bytes) -> None:
    assert problem.message
    assert problem.code
    if not problem.line:
        return
    lines = raw.decode("utf-8", "replace").removeprefix("\ufeff").split("\n")
    assert 1 <= problem.line <= len(lines)
    assert 1 <= problem.column <= len(lines[problem.line - 1]) + 1


@fuzzed(mutated(written) | written | st.binary(max_size=30), st.booleans())
def test_any_file_is_a_snapshot_or_findings_with_places(raw: bytes, careful: bool) -> None:
    found = loaded(raw, careful=careful)

    problems = found.warnings if isinstance(found, Snapshot) else found.problems + found.warnings
    for problem in problems:
        check_place(problem, raw)
    if isinstance(found, ConfigError):
        assert found.problems
    told = str(found) + repr(found) + "".join(map(str, problems))
    assert "sesame" not in told  # no value of a variable is shown


@fuzzed(files)
def test_whatever_is_accepted_can_be_used_or_says_why(value: Any) -> None:
    snapshot, _ = validate(value, ENVIRON)

    for box in snapshot.toolboxes.values():
        for spec in box.servers.values():
            secrets = secrets_of(spec, ENVIRON)
            try:
                target = expand_target(spec, ENVIRON)
            except Unexpandable as error:
                target, told = None, redact(error.message, secrets)
                assert "sesame" not in told
            if target is None:
                continue
            texts = (
                [target.url] if isinstance(target, HttpEndpoint) else [target.command, *target.args]
            )
            assert all("\0" not in text for text in texts)
            assert "sesame" not in repr(target)
            used = ENVIRON["SECRET"] in texts
            if used and isinstance(target, StdioCommand) and ENVIRON["SECRET"] in secrets:
                assert "sesame" not in redact(" ".join(texts), secrets)


@fuzzed(mutated(st.builds(lambda write, value: write(value), writers, values)))
def test_plain_json_reads_as_in_any_other_reader(raw: bytes) -> None:
    text = raw.decode("utf-8", "replace").lstrip("\ufeff")  # we pass over one, others over none
    try:
        right = strict_json(text)
    except (ValueError, RecursionError):
        right = jsonc
    try:
        found = jsonc.parse(text)
    except jsonc.SyntaxProblem as error:
        check_place(Problem("", error.message, "", "x", error.line, error.column), text.encode())
        found = jsonc
    if found is jsonc:
        assert right is jsonc or beyond(text)
    elif right is jsonc:  # only with a liberty that we take on purpose
        assert "//" in text or "/*" in text or re.search(r",\s*[\]}]", text)
    else:
        assert json.dumps(found) == json.dumps(right)


def beyond(text: str) -> bool:
    """What other readers take and we don't: too deep, half a character, a number out of range."""
    return text.count("[") + text.count("{") > jsonc.DEPTH or bool(
        re.search(r"\\u[dD][89a-fA-F]|[0-9]{300}|[0-9][eE]\+?[0-9]{3}", text)
    )


texts = st.lists(
    st.sampled_from(["${X}", "${EMPTY}", "${EMPTY:-d}", "${NOT}", "${NOT:-d}", "${NOT:-}", "$${", "${", "}", "$", "{", ":-", "X", " ", "${X"]),
    max_size=size(8),
).map("".join)  # fmt: skip


def by_hand(text: str) -> tuple[str, list[str]]:
    """The same, a character at a time."""
    out, missing, at = "", list[str](), 0
    while at < len(text):
        found = re.compile(r"\$\{([A-Za-z_]\w*)(:-([^}]*))?\}", re.ASCII).match(text, at)
        if text.startswith("$${", at):
            out, at = out + "${", at + 3
        elif found:
            name, has_default, default = found.groups()
            value = ENVIRON.get(name)
            out += (value or default) if has_default else value or ""
            missing += [name] if value is None and not has_default else []
            at = found.end()
        else:
            out, at = out + text[at], at + 1
    return out, list(dict.fromkeys(missing))


@fuzzed(texts)
def test_variables_are_replaced_once_and_nothing_else(text: str) -> None:
    found = expand(text, ENVIRON)

    assert (found.text, list(found.missing)) == by_hand(text)
    assert set(found.missing) <= set(references(text))
    assert "sesame" not in repr(found)


SECRETS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="[]"),
    min_size=SHORTEST,
    max_size=20,
)


@fuzzed(
    st.lists(SECRETS, min_size=1, max_size=3),
    st.lists(st.text(max_size=4), max_size=4),
)
def test_no_secret_stays_in_any_spelling(values: list[str], between: list[str]) -> None:
    secrets = {value: f"N{n}" for n, value in enumerate(values)}
    spelled = [form for value in values for form in spellings(value)]
    text = "".join(a + b for a, b in zip(spelled, between * len(spelled) or spelled, strict=False))

    shown = redact(text, secrets)

    for value in values:
        assert value not in shown
    for form in spelled:
        assert redact(form, dict.fromkeys(values, "N")).count("[secret:N") >= 1


def spellings(value: str) -> list[str]:
    """How programs print a value in logs and errors."""
    from urllib.parse import quote

    return [
        value,
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        json.dumps(value)[1:-1].replace("/", r"\/"),  # PHP
        quote(value, safe=""),
        quote(value, safe="!'()*~"),  # JavaScript
        repr(value)[1:-1],
    ]
