"""`import`, `install`, `uninstall` and `undo` as a person meets them."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path

import pytest

from tests.hosts.samples import FILES, SECRETS, demo, tree, write_home
from tests.kit.command import Person, newcomer
from tests.kit.config import program_entry
from tests.kit.servers import FIXTURE

CURSOR = FILES["cursor"][0]
A_TOKEN = "token-that-nobody-may-see"


@pytest.fixture
def person(tmp_path: Path) -> Person:
    person = newcomer(tmp_path)
    write_home(person.home, person.folder, ("claude-code", "cursor", "codex"))
    return person


@pytest.fixture
def served(person: Person) -> Person:
    """The same one after the import."""
    assert person.types("import", "--yes").status == 0
    return person


@pytest.fixture(scope="module")
def mistaken(tmp_path_factory: pytest.TempPathFactory) -> Person:
    """One after the import, whose commands are wrong, so that nothing is changed: one for all such tests."""
    person = newcomer(tmp_path_factory.mktemp("mistaken"))
    write_home(person.home, person.folder, ("claude-code", "cursor", "codex"))
    assert person.types("import", "--yes").status == 0
    return person


@pytest.fixture
def reachable(person: Person) -> Person:
    """The same one, with servers in Cursor that can be started here."""
    basics, workshop = (program_entry(FIXTURE, f"says={n}") for n in ("basics", "workshop"))
    servers = {"basics": basics, "workshop": workshop | {"env": {"A_TOKEN": A_TOKEN}}}
    (person.home / CURSOR).write_text(json.dumps({"mcpServers": servers}, indent=2))
    assert person.types("import", "--yes").status == 0
    return person


def test_without_a_yes_the_preview_is_all_that_happens(person: Person) -> None:
    done = person.types("import")

    assert done.status == 2
    assert '+        "figma": {' in done.out
    assert done.err.startswith("error: confirmation required; rerun with --yes")
    assert "WB-HOST-503" in done.err
    assert not person.config.exists()
    assert not (person.home / ".mcp-workbench").exists()


@pytest.mark.parametrize("command", [["import"], ["install", "cursor"], ["uninstall", "cursor"]])
def test_a_dry_run_ends_well_and_leaves_no_trace(served: Person, command: list[str]) -> None:
    before = (served.home / CURSOR).read_bytes()

    done = served.types(*command, "--dry-run")

    assert done.status == 0
    assert (served.home / CURSOR).read_bytes() == before
    assert len(served.types("undo", "--list", "--json").data) == 1  # the import


def test_a_file_or_standard_input_can_be_imported(person: Person) -> None:
    text = json.dumps({"servers": {"one": demo(), "two": {"url": "http://localhost/mcp"}}})
    (person.folder / "some.json").write_text(text)

    from_file = person.types("import", "some.json", "--yes", "--toolbox", "a")
    from_pipe = person.types("import", "-", "--yes", "--toolbox", "b", stdin=text)

    boxes = json.loads(person.config.read_text())["toolboxes"]
    assert (from_file.status, from_pipe.status) == (0, 0)
    assert set(boxes["a"]["mcpServers"]) == set(boxes["b"]["mcpServers"]) == {"one", "two"}


def test_an_import_leaves_the_comments_of_our_own_file_alone(person: Person) -> None:
    text = '{\n  // mine\n  "mcpServers": {\n    "old": {"command": "x"}, // old\n  }\n}\n'
    person.config.write_text(text)
    person.config.chmod(0o600)

    person.types("import", "cursor", "--yes")

    after = person.config.read_text()
    assert after.startswith(text[:-7])
    assert '"figma": {' in after
    person.types("undo")
    assert person.config.read_text() == text


def test_a_broken_file_keeps_nobody_from_the_others(person: Person) -> None:
    text = '{"mcpServers": {"a": {"env": {"T": "secret-value"} "b"}}}'
    (person.home / CURSOR).write_text(text)
    place = text.index('"b"') + 1

    everything = person.types("import", "--dry-run")
    named = person.types("import", "cursor", "--yes")

    assert everything.status == 0
    assert '"docs": {' in everything.out
    for done in (everything, named):
        assert f"mcp.json:1:{place}" in done.err
        assert "WB-HOST-501" in done.err
        assert "secret-value" not in done.err
    assert named.status == 2


@pytest.mark.parametrize("argv", [["import", "/"], ["install", "cursor"]])
def test_a_folder_in_the_place_of_a_file_is_a_mistake_with_a_remedy(
    served: Person, argv: list[str]
) -> None:
    (served.home / CURSOR).unlink()
    (served.home / CURSOR).mkdir()

    done = served.types(*argv, "--yes")

    assert done.status == 2
    assert done.err.startswith("error: this is a folder\n  --> /")
    assert "\n  fix: name a file, or move the folder out of the way; " in done.err
    assert "WB-HOST-501" in done.err


def test_the_same_name_for_another_server_gets_the_host_s(person: Person) -> None:
    two = {"mcpServers": {"github": {"command": "another-github"}, "a  b__": {"command": "x"}}}
    (person.home / CURSOR).write_text(json.dumps(two))

    done = person.types("import", "--yes")

    servers = json.loads(person.config.read_text())["toolboxes"]["default"]["mcpServers"]
    assert servers["github-cursor"] == {"command": "another-github"}
    assert servers["a-b"] == {"command": "x"}
    assert "'a  b__' is called 'a-b' here" in done.out


def test_two_accounts_of_one_service_stay_two(person: Person) -> None:
    """The second secret of one name gets a variable of its own."""
    entry = {"command": "mail", "env": {"API_KEY": "first-value"}}
    other = {"command": "mail", "env": {"API_KEY": "second-value"}}
    text = json.dumps({"mcpServers": {"home": entry, "work": other}})

    person.types("import", "-", "--yes", stdin=text)

    servers = json.loads(person.config.read_text())["toolboxes"]["default"]["mcpServers"]
    assert servers["home"]["env"] == {"API_KEY": "${API_KEY}"}
    assert servers["work"]["env"] == {"API_KEY": "${WORK_API_KEY}"}


def test_we_do_not_import_ourselves(served: Person) -> None:
    served.types("install", "cursor", "--yes")

    lines = served.types("import", "cursor", "--dry-run", "--json").data["servers"]

    [ours] = [line for line in lines if line["server"] == "workbench"]
    assert (ours["state"], ours["reason"]) == ("skipped", "this program")


def test_what_a_host_has_beside_us_is_told_and_stays_if_it_is_not_served(served: Person) -> None:
    told = served.types("install", "cursor", "--yes")
    kept = served.types("install", "cursor", "--yes", "--replace")

    assert "cursor still has github, figma, linear directly" in told.err
    assert "mcp-workbench install cursor --replace" in told.err
    left = json.loads((served.home / CURSOR).read_text())["mcpServers"]
    assert list(left) == ["github", "figma", "linear", "workbench"]
    assert "! github: variable GITHUB_PERSONAL_ACCESS_TOKEN is not set" in kept.out
    assert not [s for s in SECRETS.values() if s in kept.out + kept.err]


@pytest.mark.parametrize(
    ("host", "handed_on"),
    [
        ("claude-code", {}),  # it hands on everything
        ("cursor", {"env": {"A_B": "${env:A_B}", "C": "${env:C}"}}),
        ("gemini", {"env": {"A_B": "${A_B}", "C": "${C}"}}),
        ("lmstudio", {}),  # it can't, and says so
    ],
)
def test_a_host_hands_on_the_variables_that_servers_need(
    person: Person, host: str, handed_on: dict[str, dict[str, str]]
) -> None:
    server = demo() | {"env": {"X": "${A_B}-${C:-c}", "Y": "$${D}", "HERE": "${HOME}"}}
    person.config.write_text(json.dumps({"mcpServers": {"s": server}}))
    person.config.chmod(0o600)

    done = person.types("install", host, "--yes")

    [file] = [step["files"][0] for step in person.types("undo", "--list", "--json").data]
    entry = json.loads(Path(file).read_text())["mcpServers"]["workbench"]
    assert {key: value for key, value in entry.items() if key == "env"} == handed_on
    assert ("write into its entry's env: A_B, C" in done.err) == (host == "lmstudio")


def test_a_file_that_others_changed_loses_only_our_part(reachable: Person) -> None:
    file = reachable.home / CURSOR
    reachable.types("install", "cursor", "--yes", "--replace", A_TOKEN=A_TOKEN)
    changed = json.loads(file.read_text())
    assert list(changed["mcpServers"]) == ["workbench"]
    changed["mcpServers"]["mine"] = {"command": "new"}
    changed["other"] = 1
    file.write_text(json.dumps(changed, indent=1))

    done = reachable.types("undo")

    after = json.loads(file.read_text())
    assert done.status == 0
    assert "file changed since; reverted only our edit" in done.out
    assert set(after["mcpServers"]) == {"mine", "basics", "workshop"}
    assert after["mcpServers"]["workshop"]["env"]["A_TOKEN"] == A_TOKEN
    assert after["other"] == 1


def test_an_entry_that_somebody_rewrote_stays(served: Person) -> None:
    file = served.home / FILES["codex"][0]
    served.types("install", "codex", "--yes")
    text = file.read_text()
    file.write_text(text.replace('args = ["serve"', 'args = ["-v", "serve"'))

    done = served.types("undo")

    assert "mcp_servers.workbench has changed since and stays" in done.out
    assert '"-v", "serve"' in file.read_text()


def test_a_toml_file_that_others_changed_loses_only_our_part(served: Person) -> None:
    file = served.home / FILES["codex"][0]
    text = file.read_text()
    served.types("install", "codex", "--yes")
    file.write_text(file.read_text().replace('model = "o5"', 'model = "o6"  # newer'))

    served.types("undo")

    assert file.read_text() == text.replace('model = "o5"', 'model = "o6"  # newer')


def test_a_host_without_a_file_gets_one_and_loses_it_again(served: Person) -> None:
    done = served.types("install", "kiro", "zed", "--yes")

    assert done.status == 0
    assert "~/.kiro/settings/mcp.json (new)" in done.out
    assert (served.home / ".kiro/settings/mcp.json").stat().st_mode & 0o777 == 0o600
    served.types("undo")
    assert not (served.home / ".kiro").exists()
    assert not (served.home / ".config").exists()


@pytest.mark.parametrize(("home", "new"), [(0o700, 0o700), (0o755, 0o755), (0o775, 0o755)])
def test_a_new_folder_is_no_more_open_than_the_one_it_is_in(
    served: Person, home: int, new: int
) -> None:
    served.home.chmod(home)
    umask = os.umask(0o022)
    os.umask(umask)  # that of the command, too

    served.types("install", "kiro", "--yes")

    for folder in (".kiro", ".kiro/settings"):
        assert stat.S_IMODE((served.home / folder).stat().st_mode) == new & ~umask


def test_a_link_is_followed_and_the_mode_stays(served: Person) -> None:
    file, real = served.home / CURSOR, served.folder / "dotfiles.json"
    shutil.move(file, real)
    file.symlink_to(real)
    real.chmod(0o640)
    before = real.read_bytes()

    served.types("install", "cursor", "--yes")

    assert file.is_symlink()
    assert b'"workbench"' in real.read_bytes()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    served.types("undo")
    assert file.is_symlink()
    assert real.read_bytes() == before


def test_changes_are_taken_back_in_any_order(reachable: Person) -> None:
    file = reachable.home / CURSOR
    reachable.types("install", "cursor", "--yes")  # 2
    reachable.types("install", "codex", "cursor", "--yes", "--replace", A_TOKEN=A_TOKEN)  # 3

    reachable.types("undo", "2")
    middle = json.loads(file.read_text())["mcpServers"]
    reachable.types("undo", "3")

    assert "workbench" not in middle
    assert set(json.loads(file.read_text())["mcpServers"]) == {"basics", "workshop"}
    again = reachable.types("undo", "3")
    assert (again.status, again.err.splitlines()[0]) == (
        1,
        "error: change 3 has been undone already",
    )


@pytest.mark.parametrize(
    ("argv", "text", "code"),
    [
        (["install", "cursr"], "error: there is no host 'cursr'\n  Did you mean 'cursor'?", "506"),
        (["install"], "error: no host is named\n", "506"),
        (["install", "goose"], "error: Goose is not changed: its file is YAML", "508"),
        (
            ["install", "lmstudio", "--scope", "project"],
            "error: LM Studio has no project file",
            "508",
        ),
        (["import", "cursr"], "error: 'cursr' is no host and no file\n  Did you mean", "506"),
        (["install", "cursor", "--toolbox", "x"], "error: Toolbox 'x' not found", ""),
    ],
)
def test_wrong_usage_is_told(mistaken: Person, argv: list[str], text: str, code: str) -> None:
    before = tree(mistaken.home), mistaken.config.read_bytes()

    done = mistaken.types(*argv)

    assert (tree(mistaken.home), mistaken.config.read_bytes()) == before
    assert done.status == 2
    assert done.err.startswith(text)
    assert f"WB-HOST-{code}" in done.err or not code


def test_a_number_and_everything_is_one_too_many(served: Person) -> None:
    served.types("install", "cursor", "--yes")

    done = served.types("undo", "1", "--all")

    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("error: an ID and --all can't stand together\n")
    assert "fix: mcp-workbench undo --help\n" in done.err
    assert not any(record["undone"] for record in served.types("undo", "--list", "--json").data)


def test_nothing_to_undo_is_told_of_one_change_and_of_all(served: Person) -> None:
    assert served.types("undo", "--all").status == 0

    one, everything = served.types("undo"), served.types("undo", "--all")

    assert everything == one
    assert (one.status, one.err.splitlines()[0]) == (1, "error: there is nothing to undo")


def test_found_is_what_all_would_change(tmp_path: Path) -> None:
    somebody = newcomer(tmp_path)
    (somebody.folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"a": demo()}}))
    somebody.config.write_text(json.dumps({"mcpServers": {"a": demo()}}))
    somebody.config.chmod(0o600)

    for command in ("install", "uninstall"):
        nobody = somebody.types(command)
        nothing = somebody.types(command, "--all", "--dry-run")
        here = somebody.types(command, "--scope", "project")
        all_here = somebody.types(command, "--all", "--scope", "project", "--dry-run", "--json")

        assert "  fix: one of: " in nobody.err
        assert (nothing.status, nothing.out) == (0, "")
        assert nothing.err == "no host has a file on this machine; one that is named gets one\n"
        assert "found in this folder: claude-code; --all means all of them" in here.err
        assert all_here.data["hosts"] == ["claude-code"]


def test_there_must_be_something_to_install(person: Person) -> None:
    done = person.types("install", "cursor", "--yes")

    assert done.status == 2
    assert "WB-HOST-509" in done.err
    assert person.types("undo").status == 1
    assert "WB-HOST-507" in person.types("undo").err


def test_a_file_that_can_not_be_edited_is_refused_with_its_place(served: Person) -> None:
    file = served.home / FILES["codex"][0]
    text = 'model = "x"\nmcp_servers = {a = {command = "y"}}\n'
    file.write_text(text)

    done = served.types("install", "codex", "--yes")

    assert done.status == 2
    assert "config.toml:2:1" in done.err
    assert "WB-HOST-505" in done.err
    assert file.read_text() == text


def test_the_project_file_of_a_host_can_be_meant(served: Person) -> None:
    done = served.types("install", "claude-code", "cursor", "--scope", "project", "--yes")

    assert done.status == 0
    entry = json.loads((served.folder / ".mcp.json").read_text())["mcpServers"]["workbench"]
    assert entry["alwaysLoad"] is True
    assert (served.folder / ".cursor/mcp.json").exists()
    served.types("undo")
    assert [item.name for item in served.folder.iterdir()] == ["workbench-config.json"]


def test_the_state_folder_can_be_moved(person: Person, tmp_path: Path) -> None:
    state = {"MCP_WORKBENCH_HOME": str(tmp_path / "state")}

    person.types("import", "--yes", **state)

    assert not (person.home / ".mcp-workbench").exists()
    assert person.types("undo", **state).status == 0
    assert not person.config.exists()


def test_what_a_person_added_to_our_entry_survives_the_next_install(served: Person) -> None:
    file = served.home / CURSOR
    served.types("install", "cursor", "--yes")
    value = json.loads(file.read_text())
    ours = value["mcpServers"]["workbench"]
    ours["env"]["MY_TOKEN"] = "of-my-own"
    ours |= {"command": "/gone/mcp-workbench", "autoApprove": ["use_tool"], "disabled": True}
    file.write_text(json.dumps(value))

    assert served.types("install", "cursor", "--yes").status == 0

    after = json.loads(file.read_text())["mcpServers"]["workbench"]
    assert after["env"]["MY_TOKEN"] == "of-my-own"
    assert after["env"]["X_FIGMA_TOKEN"] == "${env:X_FIGMA_TOKEN}"
    assert after["autoApprove"] == ["use_tool"]
    assert "disabled" not in after  # who installs us wants us
    assert Path(after["command"]).exists()
    assert served.types("install", "cursor", "--yes").out.strip() == "cursor: there already"


def test_nothing_is_changed_where_nothing_can_be_kept(person: Person, tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    state.chmod(0o770)  # somebody else could exchange what undo would write
    (person.folder / "some.json").write_text(json.dumps({"mcpServers": {"one": demo()}}))

    done = person.types("import", "some.json", "--yes", MCP_WORKBENCH_HOME=str(state))

    assert (done.status, done.err.splitlines()[0]) == (
        1,
        f"error: the system refused: {state} is open to other users: chmod 700 {state}",
    )
    assert not person.config.exists()


def test_without_a_home_there_is_nothing_to_undo_and_nothing_is_changed(person: Person) -> None:
    (person.folder / "some.json").write_text(json.dumps({"mcpServers": {"one": demo()}}))
    (person.folder / "journal").mkdir()  # nobody's, and not to be taken for ours
    record: dict[str, object] = {"id": 1, "command": "import", "time": 0.0, "steps": []}
    (person.folder / "journal" / "0001.json").write_text(json.dumps(record))

    listed = person.types("undo", "--list", HOME="", MCP_WORKBENCH_HOME="")
    done = person.types("import", "some.json", "--yes", HOME="", MCP_WORKBENCH_HOME="")

    assert (listed.status, listed.out) == (0, "")
    assert done.status == 1
    assert "neither $MCP_WORKBENCH_HOME nor $HOME is set" in done.err
    assert not person.config.exists()


@pytest.mark.parametrize("name", ["a b", "a__b", "a_", "", "ä"])
def test_an_import_writes_nothing_that_check_would_refuse(person: Person, name: str) -> None:
    done = person.types("import", "--toolbox", name, "--yes")

    assert done.status == 2
    assert done.err.startswith(f"error: a toolbox can't be called '{name}'\n  fix: letters, digits")
    assert not person.config.exists()


def test_a_second_toolbox_needs_a_file_with_toolboxes(person: Person) -> None:
    person.config.write_text('{"mcpServers": {}}')
    person.config.chmod(0o600)

    done = person.types("import", "--toolbox", "other", "--yes")

    assert done.status == 2
    assert '  fix: leave --toolbox out, or write "toolboxes": {"default": ' in done.err


def test_of_a_file_of_variables_the_names_are_carried_and_no_value(person: Person) -> None:
    secret = "only-in-that-file-0123456789"
    (person.folder / ".env").write_text(
        f"\ufeff# mine\nexport A_NAME={secret}\n B=2\n\n#C=3\nA_NAME=x\n"
    )
    entry = {"command": "x", "envFile": "${workspaceFolder}/.env", "env": {"B": "mine", "D": "4"}}
    lost = {"command": "y", "envFile": "gone.env"}
    file = person.home / CURSOR
    file.write_text(json.dumps({"mcpServers": {"one": entry, "two": lost}}))

    done = person.types("import", "cursor", "--yes")

    servers = json.loads(person.config.read_text())["toolboxes"]["default"]["mcpServers"]
    assert done.status == 0
    assert servers["one"]["env"] == {"A_NAME": "${A_NAME}", "B": "mine", "D": "4"}
    assert servers["two"] == {"command": "y"}
    assert "one: its envFile .env is not read by us; set what it sets: A_NAME, B\n" in done.out
    assert "two: its envFile gone.env can't be read" in done.out
    assert secret not in done.out + done.err + person.config.read_text()


def test_undo_says_that_there_is_nothing_to_list(person: Person) -> None:
    done = person.types("undo", "--list")

    assert (done.status, done.out, done.err) == (
        0,
        "",
        "nothing to undo: no file was changed yet\n",
    )
    assert person.types("undo", "--list", "--json").data == []
