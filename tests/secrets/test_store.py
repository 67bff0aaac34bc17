"""The encrypted store: what is on disk, who may change it, and how values get in."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mcp_workbench.config.secret_store import SecretStore
from mcp_workbench.core.errors import SecretUnavailable
from tests.kit.command import Done, Person, newcomer
from tests.kit.config import write_config
from tests.kit.forked import COMMAND

if sys.platform == "win32":
    pytest.skip("there are no pseudo-terminals here", allow_module_level=True)

from tests.kit.terminal import terminal

VALUE = "tr0ub4dor-and-3"


@pytest.fixture
def ada(tmp_path: Path) -> Person:
    return newcomer(tmp_path)


def folder_of(person: Person) -> Path:
    return person.home / ".mcp-workbench" / "secrets"


def kept(person: Person) -> SecretStore:
    return SecretStore(str(person.home / ".mcp-workbench"))


def test_a_value_from_stdin_is_kept_without_its_line_end(ada: Person) -> None:
    done = ada.types("secret", "set", "MY_TOKEN", stdin=f"{VALUE}\n")

    assert (done.status, done.out) == (0, "")
    assert VALUE not in done.err
    assert '"secrets": {"MY_TOKEN": "store"}' in done.err
    assert kept(ada).read(["MY_TOKEN"]) == {"MY_TOKEN": VALUE}


def test_a_terminal_asks_and_does_not_show_the_value(ada: Person) -> None:
    env = ada.environ(TERM="xterm", NO_COLOR="1")
    with terminal("secret", "set", "MY_TOKEN", cwd=ada.folder, env=env) as screen:
        screen.expect("value of MY_TOKEN: ")
        screen.type(f"{VALUE}\n")
        assert screen.rest() == 0

    assert VALUE not in screen.screen
    assert kept(ada).read(["MY_TOKEN"]) == {"MY_TOKEN": VALUE}


def test_a_value_is_never_an_argument_and_a_refused_one_is_not_repeated(ada: Person) -> None:
    both = ada.types("secret", "set", "MY_TOKEN", VALUE)
    alone = ada.types("secret", "set", VALUE, stdin="x")

    for done in (both, alone):
        assert done.status == 2
        assert VALUE not in done.out + done.err
    assert not folder_of(ada).exists()


@pytest.mark.parametrize("value", ["", "\n", "a\0b", "x" * 65537])
def test_a_value_that_no_server_could_get_is_refused(value: str, ada: Person) -> None:
    assert ada.types("secret", "set", "MY_TOKEN", stdin=value).status == 2
    assert kept(ada).names() == {}


def test_the_files_are_private_and_show_names_only(ada: Person) -> None:
    ada.types("secret", "set", "MY_TOKEN", stdin=VALUE)

    assert stat.S_IMODE(folder_of(ada).stat().st_mode) == 0o700
    for path in folder_of(ada).iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert VALUE.encode() not in path.read_bytes()
    assert "MY_TOKEN" in (folder_of(ada) / "store.json").read_text()


def test_the_list_has_names_and_sources_and_no_values(ada: Person) -> None:
    write_config(
        ada.folder,
        {"secrets": {"A": "store", "B": {"file": "b"}, "C": "store"}, "mcpServers": {}},
    )
    ada.types("secret", "set", "A", stdin=VALUE)
    ada.types("secret", "set", "D", stdin=VALUE)

    listed = ada.types("secret", "list")
    data = ada.types("secret", "list", "--json").data

    assert VALUE not in listed.out + listed.err
    assert [line.split() for line in listed.out.splitlines()] == [
        ["A", "store", "set", "just", "now"],
        ["B", "file"],
        ["C", "store", "not", "set:", "mcp-workbench", "secret", "set", "C"],
        ["D", "not", "used", "by", "this", "configuration", "set", "just", "now"],
    ]
    assert [(row["name"], row["source"], row["setAt"] is None) for row in data] == [
        ("A", "store", False),
        ("B", "file", True),
        ("C", "store", True),
        ("D", "", False),
    ]


def test_what_is_removed_is_gone(ada: Person) -> None:
    for name in ("A", "B"):
        ada.types("secret", "set", name, stdin=VALUE)

    assert ada.types("secret", "remove", "A").status == 0
    assert ada.types("secret", "remove", "A", "B").status == 1
    assert kept(ada).names() == {}


def sealed(person: Person) -> dict[str, dict[str, str]]:
    return json.loads((folder_of(person) / "store.json").read_text())["secrets"]


def rewritten(person: Person, secrets: object) -> None:
    document = {"mcpWorkbenchSecrets": 1, "secrets": secrets}
    (folder_of(person) / "store.json").write_text(json.dumps(document))


def outcome(person: Person, name: str) -> str:
    value = kept(person).read([name])[name]
    return value.code if isinstance(value, SecretUnavailable) else value


def test_a_value_can_not_be_moved_to_another_name(ada: Person) -> None:
    kept(ada).write({"A": "value-of-a", "B": "value-of-b"})
    both = sealed(ada)

    rewritten(ada, {"A": both["B"], "B": both["A"]})

    assert {outcome(ada, name) for name in both} == {"WB-SEC-605"}


def test_a_changed_value_and_a_lost_key_are_refused(ada: Person) -> None:
    kept(ada).write({"A": VALUE})
    one = sealed(ada)["A"]
    swapped = "A" if one["sealed"][30] != "A" else "B"
    rewritten(ada, {"A": {**one, "sealed": one["sealed"][:30] + swapped + one["sealed"][31:]}})
    assert outcome(ada, "A") == "WB-SEC-605"

    rewritten(ada, {"A": one})
    assert outcome(ada, "A") == VALUE

    (folder_of(ada) / "key").unlink()
    assert outcome(ada, "A") == "WB-SEC-605"
    with pytest.raises(SecretUnavailable):  # a new key would lose the values that are there
        kept(ada).write({"B": VALUE})


def test_a_folder_that_others_can_open_is_not_used(ada: Person) -> None:
    kept(ada).write({"A": VALUE})
    folder_of(ada).chmod(0o755)

    assert ada.types("secret", "set", "B", stdin=VALUE).status == 1
    assert list(sealed(ada)) == ["A"]


def test_values_that_are_set_at_the_same_time_are_all_kept(ada: Person) -> None:
    names = [f"NAME_{n}" for n in range(12)]

    def set_it(name: str) -> Done:
        return ada.types("secret", "set", name, stdin=f"of {name}")

    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(set_it, names))

    assert {one.status for one in done} == {0}
    assert kept(ada).read(names) == {name: f"of {name}" for name in names}


def test_without_cryptography_it_refuses_before_anybody_types(ada: Person, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['cryptography'] = None\n")
    ran = subprocess.run(
        [*COMMAND, "secret", "set", "A"],
        input=VALUE,
        env=ada.environ(PYTHONPATH=str(tmp_path)),
        cwd=ada.folder,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert ran.returncode == 1
    assert "WB-SEC-605" in ran.stderr
    assert "pip install 'mcp-workbench-gateway[secrets]'" in ran.stderr
    assert not folder_of(ada).exists()
