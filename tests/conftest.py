"""What every test may ask for."""

import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis.strategies import just

# The same examples every time, and none fails because a machine is busy; `make fuzz` has new ones. What fails
# is not explained: that traces every line, and a test would be over its time before it has said what failed.
settings.register_profile(
    "suite",
    settings.get_profile("ci"),
    max_examples=30,
    phases=set(Phase) - {Phase.explain},
)
sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.kit.forked import begin_run  # noqa: E402 - the path was not set before

gc.disable()  # until all tests are collected: none of what that makes is garbage
# Whoever runs us in the background (`nohup`, `&` in a script) may ignore these, and children would, too.
signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
# Before the program is imported: what it waits between two looks or tries, tests need not wait.
os.environ.setdefault("MCP_WORKBENCH_TEST_PAUSES", "0.2")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=0, help="share the tests out among processes")
    about = "seconds after which a test that is over its time is ended with its process"
    parser.addoption("--grace", type=float, default=30.0, help=about)


def pytest_configure(config: pytest.Config) -> None:
    """A suite leaves nothing behind: what it finds in its own folder for temporary files is a failure."""
    from tests.leftovers import LookForLeftovers, use
    from tests.workers import SharedLoop

    if "COVERAGE_PROCESS_CONFIG" in os.environ:
        from tests.coverage_contexts import FileContexts  # loads coverage

        config.pluginmanager.register(FileContexts())
    use(Path(_scratch[-1].name) / "tmp")
    config.pluginmanager.register(LookForLeftovers())
    config.pluginmanager.register(SharedLoop(_scratch_of_worker))


def pytest_collection_finish() -> None:
    """Thousands of tests need not be searched for garbage again and again."""
    _first_property()
    gc.freeze()
    gc.enable()


@settings(max_examples=1, database=None)
@given(just(0))
def _first_property(_: int) -> None:
    """Hypothesis registers its generator with the first property. On Python 3.14, it warns after `gc.freeze`.

    It looks for who holds the generator, and the garbage collector no longer tells.
    """


@pytest.fixture
def short_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    """For commands whose other side never answers: they give it a tenth of their patience."""
    monkeypatch.setenv("MCP_WORKBENCH_TEST_DEADLINES", "0.1")


@pytest.fixture(scope="module")
def forked_commands() -> Iterator[None]:
    """For modules whose subject is not the process: their commands are forks of one that is loaded."""
    from tests.kit.forked import everywhere  # the path was not set before

    with everywhere():
        yield


@pytest.fixture
def real_commands() -> Iterator[None]:
    """For tests of such modules whose subject is the process: its memory, its time, what is in `/proc`."""
    from tests.kit.forked import nowhere

    with nowhere():
        yield


@pytest.fixture
def no_self_test() -> Iterator[None]:
    """For tests that read what `doctor` says of something else: it does not start the demo each time."""
    from tests.kit.forked import no_self_test

    with no_self_test():
        yield


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """The loop that the program runs on. Where the loop is the subject, a folder gives both."""
    return "asyncio", {"use_uvloop": True}


_homes = count()


def _new_home() -> str:
    return str(Path(_scratch[-1].name) / f"home-{next(_homes)}")


# What is remembered on disk must neither come from another test nor reach the user's own folder.
# Those who share the work have theirs beside ours, not in it: paths of sockets are short.
def _use_scratch() -> TemporaryDirectory[str]:
    root = os.environ.get("PYTEST_DEBUG_TEMPROOT")
    _scratch.append(TemporaryDirectory(prefix="mcp-workbench-tests-", dir=root))
    os.environ["MCP_WORKBENCH_HOME"] = _new_home()  # for scenes that last longer than a test
    # Nor may the user's own configuration be used where a test has none.
    os.environ["XDG_CONFIG_HOME"] = str(Path(_scratch[-1].name) / "config")
    return _scratch[-1]


@contextmanager
def _scratch_of_worker() -> Generator[None]:
    from tests.leftovers import use

    with _use_scratch() as folder:
        use(Path(folder) / "tmp")
        yield


_scratch: list[TemporaryDirectory[str]] = []  # of the first process, and behind it that of a worker
_use_scratch()
begin_run(Path(_scratch[0].name) / "run")


@pytest.fixture(scope="module", autouse=True)
def _state_home_of_scenes() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """What lasts longer than a test has one that no other module has used."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MCP_WORKBENCH_HOME", _new_home())
        yield


@pytest.fixture(autouse=True)
def _authorities(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    """Only tests that load packages need the authorities that this machine trusts; hosts would read them all."""
    if "peers" not in request.keywords:
        for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
            monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def state_home(monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder that nobody has used; it is made when something is kept."""
    home = _new_home()
    monkeypatch.setenv("MCP_WORKBENCH_HOME", home)
    return Path(home)
