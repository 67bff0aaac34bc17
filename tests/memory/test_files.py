"""Catalogues on disk: found again by what a server is, whole or not at all, bounded, without secrets."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mcp_workbench.core.catalogue import (
    Catalogue,
    Definition,
    KnownCatalogue,
    ToolChange,
    tool_change,
)
from mcp_workbench.core.spec import HttpEndpoint, ServerAddress, ServerSpec, StdioCommand
from mcp_workbench.protocol.elicitation import capability_names
from mcp_workbench.upstream.cache import (
    ABANDONED,
    EXPIRY,
    CacheLimits,
    CatalogueFiles,
    CorruptFile,
    NotCached,
)

ODD = b'{"name":"a","x":[1.50,1e400,null],"description":"\\u00e4 \\/"}'


def known(*names: str, raw: bytes = ODD, **more: Any) -> KnownCatalogue:
    tools = {name: Definition(name, raw) for name in names or ("a",)}
    more.setdefault("modern", False)
    more.setdefault("at", time.time())
    return KnownCatalogue(Catalogue(tools), **more)


def stdio(command: str = "/bin/x", *args: str, name: str = "s", **more: Any) -> ServerSpec:
    env = tuple(more.pop("env", {}).items())
    target = StdioCommand(command, args, env, more.pop("cwd", ""), more.pop("folder", ""))
    return ServerSpec(ServerAddress("dev", name), target, **more)


def http(url: str = "https://example.com/mcp", **headers: str) -> ServerSpec:
    return ServerSpec(ServerAddress("dev", "s"), HttpEndpoint(url, tuple(headers.items())))


@pytest.fixture
def files(state_home: Path) -> CatalogueFiles:
    return CatalogueFiles({"MCP_WORKBENCH_HOME": str(state_home)})


def kept(home: Path) -> list[Path]:
    return sorted((home / "catalogues").glob("*.catalogue"))


def test_all_that_was_said_comes_back_byte_by_byte(files: CatalogueFiles) -> None:
    said = known(
        "b",
        "a",
        modern=True,
        revision="2026-07-28",
        server_name="n",
        server_version="1",
        instructions="Do.",
        capabilities={"prompts": True},
        seconds=1.5,
        change=ToolChange(1.0, 2.0, ("b",), ("c",), ("a",)),
        offers={"prompts": (b'{"name":"p","x":1.50}',)},
    )

    files.write(stdio(), said)

    assert files.read(stdio()) == said
    assert list((files.read(stdio()) or known()).catalogue.tools) == ["b", "a"]


def test_nothing_is_made_by_reading_and_all_that_is_made_is_private(
    files: CatalogueFiles, state_home: Path
) -> None:
    assert files.read(stdio()) is None
    assert not state_home.exists()

    files.write(stdio(), known())

    modes = {stat.S_IMODE(path.stat().st_mode) for path in (state_home / "catalogues").iterdir()}
    assert modes == {0o600}
    assert stat.S_IMODE((state_home / "catalogues").stat().st_mode) == 0o700
    assert len(list((state_home / "catalogues").iterdir())) == 2  # a key and a catalogue


def test_another_process_finds_it_under_another_name(
    files: CatalogueFiles, state_home: Path
) -> None:
    files.write(stdio(name="one"), known("a"))

    other = CatalogueFiles({"MCP_WORKBENCH_HOME": str(state_home)})

    found = other.read(stdio(name="two", timeout=5.0))
    assert found is not None
    assert found.catalogue.names == ("a",)


@pytest.mark.parametrize(
    "other",
    [
        stdio("/bin/y"),
        stdio("/bin/x", "a"),
        stdio("/bin/x", "", "a"),
        stdio(env={"A": "1"}),
        stdio(cwd="/"),
        stdio(era="modern"),
        http(),
    ],
    ids=repr,
)
def test_another_server_is_another(files: CatalogueFiles, other: ServerSpec) -> None:
    files.write(stdio(), known())

    assert files.read(other) is None


def test_one_url_is_not_another_nor_is_one_account(files: CatalogueFiles) -> None:
    files.write(http(Authorization="Bearer ${WORK}"), known())

    assert files.read(http("https://example.com/mcp2", Authorization="Bearer ${WORK}")) is None
    assert files.read(http(Authorization="Bearer ${HOME_ACCOUNT}")) is None
    assert files.read(http(Authorization="Bearer ${WORK}")) is not None


def test_the_value_of_a_plain_variable_counts_and_that_of_a_secret_does_not(
    state_home: Path,
) -> None:
    def with_values(**values: str) -> CatalogueFiles:
        return CatalogueFiles({"MCP_WORKBENCH_HOME": str(state_home), **values})

    spec = stdio("${SERVER}", "--token", "${API_TOKEN}", env={"X": "${SESSION_ID}"})
    with_values(SERVER="/a", API_TOKEN="first-token", SESSION_ID="first-id").write(spec, known())

    again = with_values(SERVER="/a", API_TOKEN="second-token", SESSION_ID="second-id")
    assert again.read(spec) is not None
    assert (
        with_values(SERVER="/b", API_TOKEN="first-token", SESSION_ID="first-id").read(spec) is None
    )


def test_a_relative_program_is_another_in_another_folder_and_a_package_is_not(
    files: CatalogueFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "sub").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "one")
    script, package = stdio("python3", "server.py"), stdio("npx", "-y", "some-server")
    about_here = stdio("npx", "-y", "some-server", "sub")
    for spec in (script, package, about_here):
        files.write(spec, known())

    monkeypatch.chdir(tmp_path / "two")

    assert files.read(package) is not None
    assert files.read(script) is None
    assert files.read(about_here) is None


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-30] ^= 1
    path.write_bytes(data)


def another_format(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'Catalogue":1,', b'Catalogue":2,'))


def no_json(path: Path) -> None:
    path.write_bytes(b"\xff\x00 not ours")


def nothing_left(path: Path) -> None:
    path.write_bytes(b"")


def enormous(path: Path) -> None:
    path.write_bytes(b" " * (CacheLimits().file_bytes + 1))


def a_link(path: Path) -> None:
    path.rename(path.with_suffix(".real"))
    path.symlink_to(path.with_suffix(".real"))


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    "damage",
    [truncate, flip_a_bit, another_format, no_json, nothing_left, enormous, a_link, a_pipe],
)
def test_a_damaged_file_is_of_no_use_until_it_is_replaced(
    files: CatalogueFiles, state_home: Path, damage: Callable[[Path], None]
) -> None:
    files.write(stdio(), known())
    [path] = kept(state_home)
    damage(path)

    with pytest.raises(CorruptFile):
        files.read(stdio())
    files.write(stdio(), known("new"))

    assert (files.read(stdio()) or known()).catalogue.names == ("new",)


def test_a_damaged_key_begins_anew(files: CatalogueFiles, state_home: Path) -> None:
    files.write(stdio(), known())
    (state_home / "catalogues" / "key").write_bytes(b"short")
    other = CatalogueFiles({"MCP_WORKBENCH_HOME": str(state_home)})

    assert other.read(stdio()) is None
    other.write(stdio(), known("new"))

    assert (other.read(stdio()) or known()).catalogue.names == ("new",)
    assert len((state_home / "catalogues" / "key").read_bytes()) == 32


@pytest.mark.parametrize("bounds", [CacheLimits(files=3), CacheLimits(bytes=1500)], ids=repr)
def test_the_oldest_go_first(state_home: Path, bounds: CacheLimits) -> None:
    files = CatalogueFiles({"MCP_WORKBENCH_HOME": str(state_home)}, bounds)
    for number in range(6):
        files.write(stdio(f"/bin/{number}"), known(raw=b'{"x":"%b"}' % (b"x" * 300)))
        for path in kept(state_home):  # so that each is older than those after it
            then = path.stat().st_mtime - 10
            os.utime(path, (then, then))

    left = [number for number in range(6) if files.read(stdio(f"/bin/{number}")) is not None]

    assert left == [3, 4, 5]


def test_what_nobody_used_for_long_and_what_was_never_finished_goes(
    files: CatalogueFiles, state_home: Path
) -> None:
    files.write(stdio("/bin/old"), known(at=time.time() - EXPIRY - 1))
    [old] = kept(state_home)
    half, fresh = old.with_suffix(".1-a.tmp"), old.with_suffix(".1-b.tmp")
    half.touch()
    fresh.touch()
    for path, age in ((old, EXPIRY), (half, ABANDONED)):
        then = time.time() - age - 60
        os.utime(path, (then, then))

    assert files.read(stdio("/bin/old")) is None
    files.write(stdio("/bin/new"), known())

    assert not old.exists()
    assert not half.exists()
    assert fresh.exists()  # somebody may be at it


def test_too_much_is_not_kept_but_tools_are_before_the_rest(state_home: Path) -> None:
    files = CatalogueFiles({"MCP_WORKBENCH_HOME": str(state_home)}, CacheLimits(file_bytes=2000))

    files.write(stdio(), known(offers={"resources": (b'"%b"' % (b"x" * 3000),)}))
    with pytest.raises(NotCached, match="more than 2000 bytes"):
        files.write(stdio("/bin/y"), known(raw=b'"%b"' % (b"x" * 3000)))

    found = files.read(stdio())
    assert found is not None
    assert (found.catalogue.names, found.offers) == (("a",), {})
    assert files.read(stdio("/bin/y")) is None


CANARY = "canary-7f3a9c/\u00e4"


@pytest.mark.parametrize(
    "spec",
    [
        stdio(env={"X": "${CANARY}"}),
        stdio("/bin/x", "--password", CANARY),
        stdio(env={"API_KEY": CANARY}),
        http(Authorization=f"Bearer {CANARY}"),
        http(f"https://example.com/?key={CANARY}"),
    ],
    ids=["variable", "argument", "env", "header", "url"],
)
@pytest.mark.parametrize("where", ["tools", "instructions", "offers"])
def test_what_repeats_a_secret_is_not_kept(spec: ServerSpec, where: str, state_home: Path) -> None:
    files = CatalogueFiles({"MCP_WORKBENCH_HOME": str(state_home), "CANARY": CANARY})
    raw = msgspec.json.encode({"description": f"uses {CANARY}"})
    told = {
        "tools": known(raw=raw),
        "instructions": known(instructions=f"say {CANARY}"),
        "offers": known(offers={"prompts": (raw,)}),
    }
    files.write(spec, known())

    with pytest.raises(NotCached, match="secret"):
        files.write(spec, told[where])

    everything = b"".join(path.read_bytes() for path in (state_home / "catalogues").iterdir())
    assert b"canary-7f3a9c" not in everything
    files.drop(spec)
    assert files.read(spec) is None


def test_without_any_home_nothing_is_kept() -> None:
    files = CatalogueFiles({})

    assert files.read(stdio()) is None
    with pytest.raises(NotCached):
        files.write(stdio(), known())


def test_a_change_names_what_differs_and_cannot_write_lines_of_its_own() -> None:
    many = [f"t{number}" for number in range(9)]
    before = known("a", "gone", at=1.0)
    after = KnownCatalogue(
        Catalogue({n: Definition(n, b"{}" if n == "a" else ODD) for n in ("a", "e\nvil", *many)}),
        modern=False,
        at=2.0,
    )

    change = tool_change(before, after)

    assert change is not None
    assert (change.since, change.at) == (1.0, 2.0)
    assert (change.removed, change.changed) == (("gone",), ("a",))
    assert str(change) == r"added 'e\nvil', t0, t1, t2, t3, 5 more; removed gone; changed a"
    assert tool_change(after, after) is None
    assert tool_change(known("a", "b"), known("b", "a")) is None


def test_what_a_host_can_be_asked_for_is_known_by_name() -> None:
    declared = {"sampling": b"7", "elicitation": b'{"url":{},"of the host":1}', "roots": b"{}"}
    names = capability_names({key: msgspec.Raw(value) for key, value in declared.items()})

    assert names == ("elicitation", "elicitation.url", "roots", "sampling")


def test_tools_that_depend_on_what_the_host_can_be_asked_are_no_change() -> None:
    few = known("a")
    more = known("a", "b", host_capabilities=("elicitation",))
    other = known("a", "c", host_capabilities=("roots",))

    assert tool_change(few, more) is tool_change(more, few) is tool_change(more, other) is None
    assert str(tool_change(more, known("a", host_capabilities=("elicitation",)))) == "removed b"
    assert str(tool_change(few, known("b", host_capabilities=("roots",)))) == "removed a"
    assert str(tool_change(more, known("b", "c"))) == "added c"
