"""The keys `sandbox`, `sandboxEnabled` and `resourceLimits` in a configuration file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.config.load import load_config
from mcp_workbench.core.errors import ConfigError
from mcp_workbench.core.spec import ResourceLimits, Sandbox, Snapshot, StdioCommand
from tests.kit.config import write_config

FOREIGN = {
    "filesystem": {"allowWrite": ["./out"], "denyRead": ["~/.ssh"], "denyWrite": ["./out/.git"]}
}


def loaded(folder: Path, entry: dict[str, Any], **top: Any) -> Snapshot:
    servers = {"a": {"command": "x", **entry}}
    return load_config(write_config(folder, {"mcpServers": servers, **top}), {})


def target(snapshot: Snapshot, server: str = "a", toolbox: str = "default") -> StdioCommand:
    found = snapshot.toolbox(toolbox).server(server).target
    assert isinstance(found, StdioCommand)
    return found


def box(snapshot: Snapshot) -> Sandbox:
    import msgspec

    return msgspec.structs.replace(target(snapshot).sandbox, config="")


def codes(snapshot: Snapshot) -> list[str]:
    return [warning.code for warning in snapshot.warnings]


@pytest.mark.parametrize("word", ["off", "auto", "process"])
def test_a_sandbox_in_a_word(tmp_path: Path, word: Any) -> None:
    assert box(loaded(tmp_path, {"sandbox": word})) == Sandbox(word)


def test_required_is_process_which_is_never_left_out(tmp_path: Path) -> None:
    assert box(loaded(tmp_path, {"sandbox": "required"})) == Sandbox("process")


def test_lists_of_files(tmp_path: Path) -> None:
    lists = {"read": ["~/docs"], "write": ["./out"], "hide": ["~/docs/private"], "network": True}

    snapshot = loaded(tmp_path, {"sandbox": lists})

    wanted = Sandbox("files", ("~/docs",), ("./out",), ("~/docs/private",), network=True)
    assert box(snapshot) == wanted
    assert target(snapshot).sandbox.config == str(tmp_path / "workbench-config.json")
    assert snapshot.warnings == ()


def test_an_empty_object_grants_nothing(tmp_path: Path) -> None:
    assert box(loaded(tmp_path, {"sandbox": {}})) == Sandbox("files")


def test_an_entry_decides_before_its_toolbox_and_that_before_the_file(tmp_path: Path) -> None:
    plain = {"command": "x"}
    boxes = {
        "one": {"mcpServers": {"a": plain, "b": {**plain, "sandbox": "off"}}, "sandbox": "process"},
        "two": {"mcpServers": {"a": plain, "u": {"url": "http://localhost/"}}},
    }
    snapshot = load_config(write_config(tmp_path, {"toolboxes": boxes, "sandbox": "auto"}), {})

    assert target(snapshot, "a", "one").sandbox.kind == "process"
    assert target(snapshot, "b", "one").sandbox.kind == "off"
    assert target(snapshot, "a", "two").sandbox.kind == "auto"
    assert snapshot.warnings == ()


def test_the_form_of_vs_code(tmp_path: Path) -> None:
    wanted = Sandbox("files", ("/", "./out/.git"), ("./out",), ("~/.ssh",))

    assert box(loaded(tmp_path, {"sandboxEnabled": True, "sandbox": FOREIGN})) == wanted
    assert box(loaded(tmp_path, {"sandboxEnabled": True}, sandbox=FOREIGN)) == wanted
    assert box(loaded(tmp_path, {"sandboxEnabled": True})) == Sandbox("files", ("/",))


def test_vs_code_confines_only_what_is_enabled(tmp_path: Path) -> None:
    assert box(loaded(tmp_path, {}, sandbox=FOREIGN)) == Sandbox()
    assert box(loaded(tmp_path, {"sandboxEnabled": False}, sandbox="process")) == Sandbox()


def test_domains_open_the_whole_network_and_that_is_said(tmp_path: Path) -> None:
    some = {"network": {"allowedDomains": ["example.com"]}}
    none = {"network": {"allowedDomains": [], "deniedDomains": ["example.com"]}}

    snapshot = loaded(tmp_path, {"sandboxEnabled": True, "sandbox": some})

    assert box(snapshot).network
    assert codes(snapshot) == ["WB-CONF-056"]
    quiet = loaded(tmp_path, {"sandboxEnabled": True, "sandbox": none})
    assert not box(quiet).network
    assert codes(quiet) == []


@pytest.mark.parametrize(
    ("entry", "code", "path"),
    [
        ({"sandbox": "box"}, "WB-CONF-010", "mcpServers.a.sandbox"),
        ({"sandbox": True}, "WB-CONF-010", "mcpServers.a.sandbox"),
        ({"sandbox": {"read": "x"}}, "WB-CONF-010", "mcpServers.a.sandbox.read"),
        ({"sandbox": {"network": "no"}}, "WB-CONF-010", "mcpServers.a.sandbox.network"),
        ({"sandbox": {"read": ["/proc"]}}, "WB-CONF-055", "mcpServers.a.sandbox.read[0]"),
        ({"sandbox": {"write": ["/x", ""]}}, "WB-CONF-055", "mcpServers.a.sandbox.write[1]"),
        ({"resourceLimits": {"memoryBytes": 1}}, "WB-CONF-010", "mcpServers.a.resourceLimits.memoryBytes"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_an_error(
    tmp_path: Path, entry: dict[str, Any], code: str, path: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, entry)

    assert [(p.code, p.path) for p in caught.value.problems] == [(code, path)]


def test_neither_has_an_effect_beside_a_url(tmp_path: Path) -> None:
    entry: dict[str, Any] = {"url": "http://localhost/", "sandbox": "process", "resourceLimits": {}}

    snapshot = load_config(write_config(tmp_path, {"mcpServers": {"a": entry}}), {})

    assert codes(snapshot) == ["WB-CONF-026", "WB-CONF-026"]


def test_limits(tmp_path: Path) -> None:
    limits = {"memoryBytes": 1 << 30, "processes": 64, "openFiles": 256}

    snapshot = loaded(tmp_path, {"sandbox": "process", "resourceLimits": limits})

    assert target(snapshot).resources == ResourceLimits(1 << 30, 64, 256)


def test_a_changed_sandbox_is_another_process(tmp_path: Path) -> None:
    from mcp_workbench.config.expand import resolve_server

    def resolved(**entry: Any) -> object:
        return resolve_server(loaded(tmp_path, entry).toolbox("default").server("a"), {})

    assert resolved() == resolved(sandbox="off")
    assert resolved() != resolved(sandbox="process")
    assert resolved(sandbox={"read": ["a"]}) != resolved(sandbox={"read": ["b"]})
    assert resolved() != resolved(resourceLimits={"openFiles": 99})


def test_variables_in_paths_are_expanded_late(tmp_path: Path) -> None:
    from mcp_workbench.config.expand import Unexpandable, expand_target

    lists = {"read": ["${DOCS}"], "write": ["${OUT:-out}"]}
    snapshot = loaded(tmp_path, {"sandbox": lists})
    spec = snapshot.toolbox("default").server("a")

    assert codes(snapshot) == ["WB-CONF-021"]
    expanded = expand_target(spec, {"DOCS": "/docs"})
    assert isinstance(expanded, StdioCommand)
    assert (expanded.sandbox.read, expanded.sandbox.write) == (("/docs",), ("out",))
    with pytest.raises(Unexpandable, match=r"DOCS.*sandbox\.read\[0\]"):
        expand_target(spec, {})
