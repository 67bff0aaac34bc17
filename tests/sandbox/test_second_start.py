"""What a confined program leaves behind does not widen its sandbox at the next start."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mcp_workbench.core.spec import LOCK_NAME, Sandbox, StdioCommand
from mcp_workbench.upstream.sandbox import (
    SandboxUnavailable,
    confine,
    followed_links,
    may_write_configuration,
)
from tests.sandbox.scenes import needs_bubblewrap

Lists = Mapping[str, list[str]]

SECRET = "text that is out of reach"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "a home"
    (folder / "notes/inner/private").mkdir(parents=True)
    (folder / ".ssh").mkdir()
    (folder / ".state").mkdir(mode=0o700)
    for name in (".ssh/key", "notes/inner/private/file", ".state/file"):
        (folder / name).write_text(SECRET)
    return folder


def environment(home: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), "MCP_WORKBENCH_HOME": f"{home}/.state"}


def target(home: Path, lists: Lists, config: str = "") -> StdioCommand:
    paths: dict[str, Any] = {key: tuple(value) for key, value in lists.items()}
    sandbox = Sandbox("files", config=config and str(home / config), **paths)
    return StdioCommand("/bin/sh", (), cwd=str(home), folder=str(home), sandbox=sandbox)


def run(home: Path, script: str, lists: Lists, config: str = "") -> str:
    """What a program prints that runs this script in a sandbox, in the folder of its user."""
    environ = environment(home)
    argv = ("/bin/sh", "-c", f"cd {str(home)!r}; {script}")
    confined = confine(target(home, lists, config), argv, environ, environ, starts=True)
    done = subprocess.run(confined.argv, env=confined.env, capture_output=True, text=True)
    return done.stdout + done.stderr


@needs_bubblewrap
def test_the_folder_around_what_is_hidden_can_not_be_moved(home: Path) -> None:
    lists = {"write": ["notes"], "hide": ["notes/inner/private"]}

    first = run(home, "mv notes/inner notes/moved; touch notes/inner/new && echo written", lists)
    second = run(home, "cat notes/*/private/file", lists)

    assert "written" in first
    assert (home / "notes/inner/new").exists()
    assert SECRET not in second


@needs_bubblewrap
def test_nor_that_around_our_state_folder(home: Path) -> None:
    run(home, f"mv '{home}' '{home}2'", {"write": [".."]})

    assert SECRET not in run(home, f"cat '{home}'*/.state/file", {"write": [".."]})
    assert (home / ".state").exists()


@needs_bubblewrap
def test_nor_that_around_what_may_only_be_read(home: Path) -> None:
    lists = {"write": ["notes"], "read": ["notes/inner/private"]}

    run(home, "mv notes/inner notes/moved; mkdir -p notes/inner; ln -s ../.. notes/inner/private", lists)  # fmt: skip
    second = run(home, "cat .ssh/key; echo changed > notes/inner/private/file", lists)

    assert SECRET not in second
    assert (home / "notes/inner/private/file").read_text() == SECRET


@needs_bubblewrap
def test_nor_that_around_the_configuration(home: Path) -> None:
    for name in ("workbench-config.json", LOCK_NAME):
        (home / "notes/inner" / name).write_text("{}")
    script = f"mv notes/inner notes/moved; cd notes/inner; echo x > workbench-config.json; echo x > {LOCK_NAME}"

    run(home, script, {"write": ["notes"]}, "notes/inner/workbench-config.json")

    for name in ("workbench-config.json", LOCK_NAME):
        assert (home / "notes/inner" / name).read_text() == "{}"


@needs_bubblewrap
@pytest.mark.parametrize("target", ["..", "../.ssh", "{home}/.ssh"])
@pytest.mark.parametrize("key", ["write", "read"])
def test_a_link_that_the_program_made_grants_nothing(home: Path, key: str, target: str) -> None:
    lists = {"write": ["notes"]}
    lists[key] = [*lists.get(key, []), "notes/out"]
    first = run(home, f"ln -s '{target.format(home=home)}' notes/out && echo made", lists)
    assert "made" in first

    with pytest.raises(SandboxUnavailable, match=r"depends on the link .*/notes/out.*WB-BOX-702"):
        run(home, "cat .ssh/key", lists)


@needs_bubblewrap
def test_what_is_hidden_does_not_depend_on_a_link_that_can_be_changed(home: Path) -> None:
    (home / "notes/link").symlink_to("inner/private")

    with pytest.raises(SandboxUnavailable, match="depends on the link"):
        run(home, "true", {"write": ["notes"], "hide": ["notes/link"]})


@needs_bubblewrap
def test_links_elsewhere_and_links_that_stay_inside_work(home: Path) -> None:
    (home / "elsewhere").symlink_to("notes")
    (home / "notes/link").symlink_to("inner")

    out = run(home, "ls elsewhere/link", {"write": ["elsewhere"], "read": ["elsewhere/link"]})

    assert out == "private\n"


@needs_bubblewrap
def test_sockets_and_pipes_can_be_hidden(home: Path) -> None:
    os.mkfifo(home / "notes/pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        before = Path.cwd()
        os.chdir(home / "notes")  # a socket has a short path
        try:
            listener.bind("socket")
        finally:
            os.chdir(before)
        script = "for kind in p S; do for f in notes/pipe notes/socket; do [ -$kind $f ] && echo $f; done; done"

        assert run(home, script, {"write": ["notes"]}).split() == ["notes/pipe", "notes/socket"]
        assert run(home, script, {"write": ["notes"], "hide": ["notes/pipe", "notes/socket"]}) == ""


@needs_bubblewrap
def test_what_may_only_be_read_is_read_only_by_its_other_names(home: Path) -> None:
    (home / "alias").symlink_to("notes")
    script = "echo changed > notes/inner/private/file; cat notes/inner/private/file"

    out = run(home, script, {"write": ["notes"], "read": ["alias/inner/private"]})

    assert SECRET in out


def test_a_configuration_is_writable_if_a_link_to_it_is(home: Path) -> None:
    (home / "real.json").write_text("{}")
    (home / "notes/config.json").symlink_to(home / "real.json")

    by_link = target(home, {"write": ["notes"]}, "notes/config.json")
    assert may_write_configuration(by_link, environment(home))
    assert not may_write_configuration(
        target(home, {"write": ["notes"]}, "real.json"), environment(home)
    )


def test_links_are_followed_to_their_end(tmp_path: Path) -> None:
    folder = tmp_path.resolve()
    (folder / "b").mkdir()
    (folder / "a").symlink_to("b/../c")
    (folder / "c").symlink_to(folder / "b")
    (folder / "loop").symlink_to("loop/x")

    assert list(followed_links(f"{folder}/./a/x")) == [f"{folder}/a", f"{folder}/c"]
    assert len(list(followed_links(f"{folder}/loop"))) < 10_000
