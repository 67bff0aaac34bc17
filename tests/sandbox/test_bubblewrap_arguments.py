"""The command line of a sandbox, decided without looking at the machine."""

from __future__ import annotations

import pytest

from mcp_workbench.core.bubblewrap import (
    Surroundings,
    box_arguments,
    describe,
    is_visible,
    limited,
    probe_arguments,
    seen_at,
)
from mcp_workbench.core.spec import ResourceLimits, Sandbox

HERE = Surroundings("/work", "/home/ada")


def mounts(sandbox: Sandbox, around: Surroundings = HERE) -> dict[str, tuple[str, int]]:
    """What is mounted at each path, and as which in order."""
    options = box_arguments(sandbox, around)
    found: dict[str, tuple[str, int]] = {}
    for at, option in enumerate(options):
        if option.startswith(("--bind", "--ro-bind", "--dev-bind")):
            found[options[at + 2]] = (option if options[at + 1] != "/dev/null" else "nothing", at)
        elif option in ("--tmpfs", "--proc", "--dev"):
            found[options[at + 1]] = (option, at)
    return found


def test_the_sandbox_process_has_its_own_processes_and_all_files() -> None:
    options = box_arguments(Sandbox("process"), HERE)

    assert options == (
        "--die-with-parent", "--unshare-pid", "--dev-bind", "/", "/", "--proc", "/proc",
    )  # fmt: skip
    assert options == box_arguments(Sandbox("auto"), HERE)


def test_root_keeps_no_capability_that_reaches_other_processes() -> None:
    root = Surroundings("/", is_root=True)

    process = box_arguments(Sandbox("process"), root)
    files = box_arguments(Sandbox("files"), root)

    assert process[process.index("--cap-drop") + 1] == "ALL"
    assert "CAP_DAC_OVERRIDE" in process
    assert not {"CAP_SYS_ADMIN", "CAP_SYS_PTRACE", "CAP_MKNOD", "CAP_SYS_MODULE"} & set(process)
    assert "--cap-drop" in files
    assert "--cap-add" not in files


@pytest.mark.parametrize("network", [True, False])
def test_the_network_is_there_or_not(network: bool) -> None:
    options = box_arguments(Sandbox("files", network=network), HERE)

    assert ("--unshare-net" in options) != network
    assert ("/run/systemd/resolve" in mounts(Sandbox("files", network=network))) == network


def test_folders_between_mounts_are_mounts_where_they_could_be_moved() -> None:
    around = Surroundings("/", "/home/ada", hidden_folders=("/data/a/b/secret", "/shown/a/secret"))
    found = mounts(Sandbox("files", read=("/shown",), write=("/data",)), around)

    assert {path for path in found if found[path][0] == "--bind-try"} == {"/data/a", "/data/a/b"}


def test_the_deepest_path_decides() -> None:
    nested = Sandbox("files", read=("/data/a/b",), write=("/data", "/data/a/b/c"))

    order = [path for path in mounts(nested) if path.startswith("/data")]

    assert sorted(order, key=lambda path: mounts(nested)[path][1]) == [
        "/data", "/data/a", "/data/a/b", "/data/a/b/c",
    ]  # fmt: skip


def test_the_stricter_list_wins() -> None:
    both = Sandbox("files", read=("/data",), write=("/data", "/more"))
    around = Surroundings("/work", "", hidden_folders=("/more",))

    assert mounts(both)["/data"][0] == "--ro-bind"
    assert mounts(both, around)["/more"][0] == "--tmpfs"


def test_home_and_temporary_files_are_its_own_unless_they_are_granted() -> None:
    nothing = mounts(Sandbox("files"))
    homes = mounts(Sandbox("files", read=("/home",)))
    everything = mounts(Sandbox("files", read=("/",)))

    assert {nothing[path][0] for path in ("/home/ada", "/tmp", "/run")} == {"--tmpfs"}
    assert "/home/ada" not in homes
    assert everything["/tmp"][0] == "--tmpfs"
    assert "/usr" not in everything
    assert mounts(Sandbox("files", write=("/tmp",)))["/tmp"][0] == "--bind"


def test_the_processes_of_others_are_never_granted() -> None:
    everything = mounts(Sandbox("files", write=("/",)))

    assert everything["/proc"][0] == "--proc"
    assert everything["/proc"][1] > everything["/"][1]


def test_devices_are_granted_as_devices() -> None:
    assert mounts(Sandbox("files", write=("/dev/dri",)))["/dev/dri"][0] == "--dev-bind"


def test_files_and_folders_are_hidden_and_the_configuration_can_not_be_written() -> None:
    around = Surroundings("/w", "", False, ("/w/state",), ("/w/key",), ("/w/config.json",))

    inside = mounts(Sandbox("files", write=("/w",)), around)

    assert inside["/w/state"][0] == "--tmpfs"
    assert inside["/w/key"][0] == "nothing"
    assert inside["/w/config.json"][0] == "--ro-bind"


def test_the_working_folder_exists_and_is_empty_unless_it_is_granted() -> None:
    options = box_arguments(Sandbox("files"), HERE)
    granted = box_arguments(Sandbox("files", read=("/work",)), HERE)

    assert options[options.index("--dir") + 1] == "/work"
    assert options[-4:] == ("--remount-ro", "/", "--chdir", "/work")
    assert "--dir" not in granted


def test_a_probe_has_the_namespaces_and_no_path_that_may_be_missing() -> None:
    for sandbox in (Sandbox("process"), Sandbox("files"), Sandbox("files", network=True)):
        probe = probe_arguments(sandbox, is_root=False)
        assert probe[-5:] == ("--dev-bind", "/", "/", "--proc", "/proc")
        wanted = {o for o in box_arguments(sandbox, HERE) if o.startswith("--unshare")}
        assert wanted <= set(probe)


@pytest.mark.parametrize(
    ("path", "sandbox", "visible"),
    [
        ("/usr/bin/node", Sandbox("files"), True),
        ("/home/ada/x", Sandbox("files"), False),
        ("/home/ada/x", Sandbox("files", read=("/home/ada",)), True),
        ("/home/adam/x", Sandbox("files", read=("/home/ada",)), False),
        ("/home/ada/x", Sandbox("files", read=("/",)), True),
        ("/tmp/x", Sandbox("files", read=("/",)), False),
        ("/tmp/x/y", Sandbox("files", read=("/tmp/x",)), True),
        ("/anything", Sandbox("process"), True),
    ],
)
def test_which_programs_can_be_started(path: str, sandbox: Sandbox, visible: bool) -> None:
    assert is_visible(path, sandbox) == visible


def test_a_path_is_found_behind_links() -> None:
    grants = [("/link", "/data/ada"), ("/other", "/other"), ("/", "/")]

    assert list(seen_at("/data/ada/state", grants)) == ["/link/state", "/data/ada/state"]


def test_limits_are_set_by_a_shell_that_becomes_the_program() -> None:
    argv = ("prog", "an argument; with $signs")

    assert limited(argv, ResourceLimits()) == argv
    line = limited(argv, ResourceLimits(memory_bytes=1025, open_files=20))
    assert line[:2] == ("/bin/sh", "-c")
    assert line[-5:] == ("2", "20", "0", *argv)


def test_a_sandbox_is_described_in_one_line() -> None:
    assert describe(Sandbox("process")) == "process"
    some = Sandbox("files", ("/a", "/b"), ("/c",))
    assert describe(some) == "files, 2 to read, 1 to write, no network"
