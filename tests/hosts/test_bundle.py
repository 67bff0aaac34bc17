"""`add` of a bundle (`.mcpb`): unpacked, tried, written; and archives that must not be unpacked."""

from __future__ import annotations

import json
import stat
import sys
import zipfile
from pathlib import Path
from shlex import quote
from typing import Any

import pytest

from mcp_workbench.config import jsonc
from mcp_workbench.core.errors import InvalidCall
from mcp_workbench.hosts import bundle as bundles
from mcp_workbench.hosts.bundle import from_bundle, read_bundle
from mcp_workbench.hosts.files import this_machine
from mcp_workbench.hosts.server_json import ValueSource
from tests.hosts.samples import tree
from tests.kit.command import Person, newcomer

START = f"#!/bin/sh\nexec {quote(sys.executable)} -P -m mcp_workbench.demo basics\n"
MANIFEST: dict[str, Any] = {
    "manifest_version": "0.3",
    "name": "Demo Notes",
    "version": "1.2.0",
    "server": {
        "type": "binary",
        "entry_point": "bin/start",
        "mcp_config": {
            "command": "${__dirname}/bin/start",
            "args": ["--home=${HOME}", "${user_config.folders}", "--level", "${user_config.level}"],
            "env": {
                "KEY": "${user_config.key}",
                "NONE": "${user_config.nothing}",
                "LITERAL": "${X}",
            },
            "platform_overrides": {"win32": {"command": "never.exe"}},
        },
    },
    "user_config": {
        "folders": {"type": "directory", "multiple": True, "default": ["${HOME}/a", "/b"]},
        "level": {"type": "number", "required": True, "description": "how much"},
        "key": {"type": "string", "sensitive": True},
        "nothing": {"type": "string"},
    },
    "compatibility": {"platforms": ["linux", "darwin", "win32"]},
}


def archive(path: Path, manifest: Any = MANIFEST, **files: str) -> Path:
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("manifest.json", json.dumps(manifest))
        program = zipfile.ZipInfo("bin/start")
        program.external_attr = (stat.S_IFREG | 0o755) << 16
        out.writestr(program, START)
        for name, text in files.items():
            out.writestr(name, text)
    return path


@pytest.fixture
def person(tmp_path: Path) -> Person:
    person = newcomer(tmp_path)
    archive(person.folder / "notes.mcpb")
    return person


def unpacked(person: Person) -> list[Path]:
    return sorted((person.home / ".mcp-workbench" / "bundles").glob("*"))


def servers(person: Person) -> dict[str, Any]:
    file = person.home / ".config" / "mcp-workbench" / "config.json"
    value: Any = jsonc.parse(file.read_text())
    return value["toolboxes"]["default"]["mcpServers"]


def test_it_is_unpacked_tried_and_written(person: Person) -> None:
    lacking = person.types("add", "notes.mcpb", "--yes")
    done = person.types("add", "notes.mcpb", "--set", "level=3", "--yes")

    assert (lacking.status, "fix: --set level=VALUE   how much" in lacking.err) == (2, True)
    assert done.status == 0, done.err
    assert "✔ default/Demo-Notes: demo-basics 1.0.0, 4 tools" in done.err
    (folder,) = unpacked(person)
    assert servers(person)["Demo-Notes"] == {
        "command": f"{folder}/bin/start",
        "args": [f"--home={person.home}", f"{person.home}/a", "/b", "--level", "3"],
        "env": {"KEY": "${DEMO_NOTES_KEY:-}", "LITERAL": "$${X}"},
    }
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "bin" / "start").stat().st_mode) == 0o700
    states = {
        line["subject"]: line["state"] for line in person.types("doctor", "--json").data["lines"]
    }
    assert states["state folder"] == "good"
    again = person.types(
        "add", "mine", "notes.mcpb", "--set", "level=3", "--set", "folders=/c,/d", "-y"
    )
    assert (again.status, unpacked(person)) == (0, [folder])
    assert servers(person)["mine"]["args"][1:3] == ["/c", "/d"]


def test_one_that_does_not_answer_leaves_nothing_behind(person: Person) -> None:
    manifest = MANIFEST | {"server": {"type": "binary", "entry_point": "bin/gone"}}
    archive(person.folder / "bad.mcpb", manifest)

    dry = person.types("add", "bad.mcpb", "--dry-run")
    done = person.types("add", "bad.mcpb", "--yes")

    assert (dry.status, done.status) == (0, 4)
    assert unpacked(person) == []
    assert not (person.home / ".config").exists()


@pytest.mark.parametrize(
    ("manifest", "reason"),
    [
        (MANIFEST | {"server": 7}, "its manifest has no server"),
        (MANIFEST | {"server": {"type": "other"}}, "does not say how it is started"),
        (MANIFEST | {"compatibility": {"platforms": ["beos"]}}, "it is for beos"),
        ([], "it is no bundle"),
    ],
)
def test_a_manifest_that_does_not_fit(tmp_path: Path, manifest: Any, reason: str) -> None:
    person = newcomer(tmp_path)
    archive(person.folder / "it.mcpb", manifest)

    done = person.types("add", "it.mcpb", "--yes")

    assert (done.status, reason in done.err) == (2, True), done.err
    assert tree(person.home) == tree(person.home / "nothing")


def filled(path: Path, options: dict[str, Any], *args: str) -> list[str]:
    """The arguments of a bundle with these options."""
    server = {"type": "node", "entry_point": "x", "mcp_config": {"command": "x", "args": args}}
    archive(path, {**MANIFEST, "server": server, "user_config": options})
    values = ValueSource({}, lambda name, about: "")
    return from_bundle("", read_bundle(path), "/home", values, this_machine()).entry["args"]


def test_options_that_refer_to_each_other_are_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "x.mcpb"
    doubled = {f"o{n}": {"default": f"${{user_config.o{n + 1}}}" * 2} for n in range(60)}

    assert filled(path, {"a": {"default": "${user_config.a}"}}, "${user_config.a}") == [
        "$${user_config.a}"
    ]
    assert filled(path, doubled, "x${user_config.o0}") == ["x" + "$${user_config.o1}" * 2]
    with pytest.raises(InvalidCall, match="its options would fill the entry"):
        filled(path, {"a": {"default": "x" * 4000}}, *["${user_config.a}"] * 1000)


@pytest.mark.parametrize("name", ["../out", "/out", "a/../../out", "a\\..\\out", "c:out", "a//b"])
def test_no_path_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidCall, match="leads out of its folder"):
        read_bundle(archive(tmp_path / "it.mcpb", **{name: "x"}))


def test_links_bombs_and_doubles_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = archive(tmp_path / "link.mcpb")
    with zipfile.ZipFile(link, "a") as out:
        entry = zipfile.ZipInfo("link")
        entry.external_attr = (stat.S_IFLNK | 0o777) << 16
        out.writestr(entry, "/etc/passwd")
    with pytest.raises(InvalidCall, match="'link' is no plain file"):
        read_bundle(link)

    double = archive(tmp_path / "double.mcpb")
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(double, "a") as out:
        out.writestr("manifest.json", "{}")
    with pytest.raises(InvalidCall, match="two of one name"):
        read_bundle(double)

    monkeypatch.setattr(bundles, "MOST_BYTES", 100)
    with pytest.raises(InvalidCall, match="when unpacked"):
        read_bundle(archive(tmp_path / "large.mcpb", large="x" * 101))
    (tmp_path / "none.mcpb").write_text("nothing")
    with pytest.raises(InvalidCall, match="it is no bundle"):
        read_bundle(tmp_path / "none.mcpb")


@pytest.mark.parametrize(
    "content", [b'{"x":%b' % (b"[" * 100_000), b'{"server":{"type":"\xff"}}', b"\xff", b""]
)
def test_a_manifest_that_can_t_be_read_is_refused(tmp_path: Path, content: bytes) -> None:
    with zipfile.ZipFile(tmp_path / "odd.mcpb", "w") as out:
        out.writestr("manifest.json", content)
    with pytest.raises(InvalidCall, match="it is no bundle"):
        read_bundle(tmp_path / "odd.mcpb")


@pytest.mark.parametrize("flaw", ["encrypted", "damaged"])
def test_an_archive_that_can_t_be_unpacked_is_refused(tmp_path: Path, flaw: str) -> None:
    path = tmp_path / "odd.mcpb"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("manifest.json", json.dumps(MANIFEST))
    data = bytearray(path.read_bytes())
    place = data.index(b"PK\1\2")  # what the archive says of its file
    if flaw == "encrypted":
        data[6] |= 1
        data[place + 8] |= 1
    else:
        data[50:60] = b"\xff" * 10
    path.write_bytes(data)

    with pytest.raises(InvalidCall, match="it is no bundle"):
        read_bundle(path)
