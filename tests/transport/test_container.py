"""The container of a server is removed when its client has ended, and when we have been killed.

The client here is a stand-in, for what a real engine does not do on demand: it hangs, it is slow, it
fails. `tests/peers/test_containers.py` has a real one.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mcp_workbench.core.spec import StdioCommand
from mcp_workbench.transport.container import SCRIPT, running_container
from mcp_workbench.transport.process import GUARDS, ChildProcess, ProcessSpec, guard
from mcp_workbench.upstream.dial import launch_of
from tests.kit.clock import PATIENCE, eventually, until
from tests.kit.processes import alive, children, cmdline
from tests.kit.vitals import open_fds

if sys.platform != "linux":
    pytest.skip("reads /proc", allow_module_level=True)

LIMIT = 20.0

# An engine whose containers are files in $HOME with their labels: they are there until they are removed.
ENGINE = """#!/bin/sh
cd "$HOME" || exit
echo "$*" >>commands
make() { echo "$1" >made && mv made ours.container; } # whoever sees it, sees its label
[ "$1" = --debug ] && shift
case $1 in
run)
  [ -e slow ] && (exec 0</dev/null 1>&0 2>&0; until [ -e go ]; do sleep 0.02; done; make "$3") &
  [ -e slow ] || make "$3"
  trap '' TERM
  cat
  [ -e stubborn ] && while :; do sleep 0.05; done
  ;;
ps)
  while [ -e hung ]; do sleep 0.05; done
  [ -e broken ] && exit 1
  grep -l -x "${5#label=}" ./*.container || :
  ;;
kill) exit 1 ;;
rm) shift 2; rm "$@" ;;
esac
"""


@pytest.fixture(autouse=True)
def a_guard_of_its_own() -> None:
    """Tests may share a loop, and what one has closed stays closed."""
    GUARDS.clear()


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    home = tmp_path / "a home"
    home.mkdir()
    (home / "another.container").write_text("mcp-workbench.server=another\n")
    program = home / "docker"
    program.write_text(ENGINE)
    program.chmod(0o755)
    return home


def launch(engine: Path, *args: str) -> ProcessSpec:
    command = StdioCommand(str(engine / "docker"), args or ("run", "image"))
    return launch_of(command, {"HOME": str(engine), "PATH": os.environ["PATH"]})


def containers(engine: Path) -> list[str]:
    return sorted(path.stem for path in engine.glob("*.container"))


def commands(engine: Path) -> list[str]:
    return [line.split()[0] for line in (engine / "commands").read_text().splitlines()]


def removers(pid: int) -> list[int]:
    return [child for child in children(pid) if b"removes the container" in cmdline(child)]


async def run(engine: Path, body: Callable[[ChildProcess], None] = lambda _: None) -> None:
    spec = launch(engine)
    assert spec.container is not None
    async with asyncio.timeout(LIMIT):
        async with running_container(spec, spec.container, print, print) as child:
            await until((engine / "commands").exists)
            if not (engine / "slow").exists():
                await until(lambda: containers(engine) == ["another", "ours"])
            body(child)


async def test_it_is_removed_after_its_client_and_no_other_is(engine: Path) -> None:
    before = open_fds()

    await run(engine)

    assert containers(engine) == ["another"]
    assert commands(engine) == ["run", "ps", "kill", "rm", "ps"]
    assert removers(os.getpid()) == []
    await asyncio.sleep(0)
    assert open_fds() <= before


async def test_a_container_that_is_gone_costs_one_look(engine: Path) -> None:
    await run(engine, lambda _: (engine / "ours.container").unlink())

    assert commands(engine) == ["run", "ps"]


async def test_options_of_the_client_are_used_again(engine: Path) -> None:
    spec = launch(engine, "--debug", "run", "image")
    assert spec.container is not None
    async with asyncio.timeout(LIMIT):
        async with running_container(spec, spec.container, print, print):
            await until(lambda: containers(engine) == ["another", "ours"])

    assert containers(engine) == ["another"]
    assert set(commands(engine)) == {"--debug"}


async def test_a_container_that_comes_into_being_late_is_found(engine: Path) -> None:
    """The client is killed before its engine has done what it was asked for."""
    (engine / "slow").touch()
    (engine / "stubborn").touch()
    spec = launch(engine)
    assert spec.container is not None
    async with asyncio.timeout(LIMIT):
        async with running_container(spec, spec.container, print, print) as child:
            await until((engine / "commands").exists)
            os.killpg(child.pid, signal.SIGKILL)  # with what would have made it
            assert await child.gone_within(LIMIT)
            [remover] = removers(os.getpid())
            made = engine / "ours.container"
            asyncio.get_running_loop().call_later(0.3, made.write_text, f"{spec.container.label}\n")

        await until(lambda: not alive(remover))
    assert containers(engine) == ["another"]


async def test_a_remover_that_was_killed_has_a_successor(engine: Path) -> None:
    def kill_remover(_: ChildProcess) -> None:
        [remover] = removers(os.getpid())
        os.kill(remover, signal.SIGKILL)

    await run(engine, kill_remover)

    assert containers(engine) == ["another"]


async def test_an_engine_that_hangs_does_not_hold_us(
    engine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_workbench.transport.container.REMOVAL", 0.2)
    (engine / "hung").touch()

    await run(engine)

    assert containers(engine) == ["another", "ours"]
    assert len(removers(os.getpid())) == 1
    (engine / "hung").unlink()
    async with asyncio.timeout(LIMIT):
        await until(lambda: not removers(os.getpid()))
    assert containers(engine) == ["another"]


async def test_a_container_that_can_t_be_removed_is_reported(
    engine: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_workbench.transport.container.REMOVAL", LIMIT)
    quick = SCRIPT.replace("0.2 0.3 0.5 1 2", "0.02 0.03 0.05")
    assert quick != SCRIPT
    monkeypatch.setattr("mcp_workbench.transport.container.SCRIPT", quick)
    (engine / "broken").touch()

    await run(engine)

    assert "a container could not be removed; look for it with: " in caplog.text
    assert "docker ps -a --filter label=mcp-workbench.server=" in caplog.text


async def test_who_interrupts_twice_does_not_wait_for_the_engine(engine: Path) -> None:
    (engine / "broken").touch()

    await run(engine, lambda _: guard().end_all())

    [remover] = removers(os.getpid())
    (engine / "broken").unlink()
    async with asyncio.timeout(LIMIT):
        await until(lambda: not alive(remover))
    assert containers(engine) == ["another"]


async def test_without_a_shell_servers_start_all_the_same(
    engine: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_workbench.transport.container.SHELL", "/no/such/shell")

    await run(engine)

    assert containers(engine) == ["another", "ours"]
    assert "a container would outlive us: /no/such/shell: No such file" in caplog.text


async def test_a_client_that_can_t_be_started_leaves_nobody_waiting(engine: Path) -> None:
    spec = launch(engine)
    assert spec.container is not None
    (engine / "docker").write_text("#!/no/such/program\n")
    async with asyncio.timeout(LIMIT):
        with pytest.raises(FileNotFoundError):
            async with running_container(spec, spec.container, print, print):
                raise AssertionError
        await until(lambda: not removers(os.getpid()))


def test_our_variable_and_secrets_of_the_server_do_not_reach_the_remover(engine: Path) -> None:
    command = StdioCommand(str(engine / "docker"), ("run", "image"), (("API_KEY", "canary"),))
    spec = launch_of(command, {"HOME": str(engine), "PATH": "/bin"})

    assert spec.env["API_KEY"] == "canary"
    assert spec.container is not None
    assert spec.container.env == {"HOME": str(engine), "PATH": "/bin"}


# We are killed

PROGRAM = """
import asyncio, os, signal, sys
from mcp_workbench.core.spec import StdioCommand
from mcp_workbench.transport.container import running_container
from mcp_workbench.upstream.dial import launch_of

async def main():
    launch = launch_of(StdioCommand(sys.argv[1], ("run", "image")), dict(os.environ))
    async with running_container(launch, launch.container, print, print) as child:
        while not os.path.exists(os.environ["HOME"] + "/ours.container"):
            await asyncio.sleep(0.005)
        if sys.argv[2] == "copy" and os.fork() == 0:
            print(os.getpid(), flush=True)
            os.close(1)
            signal.pause()
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.mark.parametrize("how", ["alone", "copy"])
def test_it_is_removed_after_sigkill_even_if_a_copy_of_us_lives_on(engine: Path, how: str) -> None:
    (engine / "stubborn").touch()
    argv = [sys.executable, "-c", PROGRAM, str(engine / "docker"), how]
    env = {**os.environ, "HOME": str(engine)}
    done = subprocess.run(argv, env=env, stdout=subprocess.PIPE, timeout=PATIENCE)
    copies = [int(word) for word in done.stdout.split()]
    try:
        assert done.returncode == -signal.SIGKILL
        eventually(lambda: containers(engine) == ["another"], "it is removed")
    finally:
        for copy in copies:
            os.kill(copy, signal.SIGKILL)
