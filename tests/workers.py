"""`--workers N` shares the tests out among N processes, which are forks of one that has collected them.

Collecting takes seconds of CPU time: with one collection for all, as many processes as wait for others cost
next to nothing. Each worker has a range of neighbours, so that fixtures of a module are made once or twice;
one that has run out takes half of the longest range that is left. A worker always knows the test after the
one that runs: pytest tears down what that one does not need.

A worker that dies fails the test that it ran, and is replaced. So is one whose test goes on for twice its
time, because what should end it hangs as well. Without `fork` the tests run one by one.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from multiprocessing.connection import Connection, Pipe, wait
from tempfile import TemporaryFile
from typing import Any, NoReturn, Self

import pytest
from _pytest._io import TerminalWriter
from _pytest.capture import FDCapture

from tests import leftovers

Reports = list[dict[str, Any]]
LOOK = 1.0  # seconds between two looks for workers that are late
Place = Callable[[], AbstractContextManager[object]]  # where a worker keeps its files


class Result:
    """What a worker sends after each test, and at its end."""

    def __init__(self) -> None:
        self.reports: Reports = []
        self.warnings: list[tuple[warnings.WarningMessage, str, str]] = []
        self.leftovers: list[str] = []
        self.failure = ""  # outside of a test
        self.is_last = False


class SharedLoop:
    """Replaces pytest's loop over the tests."""

    def __init__(self, place: Place) -> None:
        self._place = place

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        option = session.config.option
        count = min(option.workers, len(session.items))
        if count < 2 or option.collectonly or session.testsfailed or not hasattr(os, "fork"):
            return None
        _make_common_folder(session.config)
        with Workers(session, count, self._place) as workers:
            workers.run()
        return True


def _make_common_folder(config: Any) -> None:
    """The folder for `tmp_path`, made before the first fork: workers have theirs in it.

    Otherwise each worker would make one beside it, and at its end remove those of others that have no lock yet.
    """
    config._tmp_path_factory.getbasetemp()


class Worker:
    """A process as the first one sees it."""

    def __init__(self, number: int, todo: deque[int]) -> None:
        self.number = number
        self.todo = todo  # tests that it was not given yet
        self.given: deque[int | None] = deque()  # to it and not reported; None: there are no more
        self.since = 0.0  # by the monotonic clock: when the first of these began
        self.pid = 0
        self.connection: Connection | None = None


class Workers:
    """The processes, and who runs what."""

    def __init__(self, session: pytest.Session, count: int, place: Place) -> None:
        self._session = session
        self._place = place
        size = len(session.items)
        edges = [size * n // count for n in range(count + 1)]
        ranges = [deque(range(edges[n], edges[n + 1])) for n in range(count)]
        self._workers = [Worker(number, todo) for number, todo in enumerate(ranges)]

    def __enter__(self) -> Self:
        for worker in self._workers:
            self._start(worker)
        return self

    def __exit__(self, *_: object) -> None:
        """Those that still run end after their test."""
        running = [worker for worker in self._workers if worker.connection is not None]
        for worker in running:
            assert worker.connection is not None
            worker.connection.close()
        for worker in running:
            while not os.waitpid(worker.pid, os.WNOHANG)[0]:
                self._end_if_late(worker)
                time.sleep(0.01)

    def run(self) -> None:
        """Until all have ended. Raises what pytest raises to stop early."""
        while busy := {worker.connection: worker for worker in self._workers if worker.connection}:
            for worker in busy.values():
                self._end_if_late(worker)
            for connection in wait(list(busy), LOOK):
                self._receive(busy[connection])  # pyright: ignore[reportArgumentType]
                if self._session.shouldfail:
                    raise self._session.Failed(self._session.shouldfail)
                if self._session.shouldstop:
                    raise self._session.Interrupted(self._session.shouldstop)

    def _start(self, worker: Worker) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        worker.connection, theirs = Pipe()
        worker.pid = os.fork()
        if not worker.pid:
            for other in self._workers:  # they end when the first process does
                if other.connection is not None:
                    other.connection.close()
            _work(self._session, theirs, self._place, worker.number)
        theirs.close()
        worker.since = time.monotonic()
        worker.given.clear()
        self._give(worker)
        self._give(worker)

    def _end_if_late(self, worker: Worker) -> None:
        if time.monotonic() - worker.since > self._patience(worker):
            worker.since = math.inf
            os.kill(worker.pid, signal.SIGABRT)  # pytest has it print what all its threads did

    def _patience(self, worker: Worker) -> float:
        """Seconds until a test whose time was over should have ended, and told what its threads did."""
        index = worker.given[0] if worker.given else None
        item = None if index is None else self._session.items[index]
        marker = item.get_closest_marker("timeout") if item else None
        config: Any = self._session.config
        its_time = marker.args[0] if marker else config._env_timeout
        return its_time + config.getoption("grace") if its_time else math.inf

    def _give(self, worker: Worker) -> None:
        if None in worker.given:
            return
        if not worker.todo:
            self._share_with(worker)
        worker.given.append(worker.todo.popleft() if worker.todo else None)
        assert worker.connection is not None
        with suppress(ConnectionError):  # it has died: that is read next
            worker.connection.send(worker.given[-1])

    def _share_with(self, worker: Worker) -> None:
        longest = max(self._workers, key=lambda other: len(other.todo)).todo
        for _ in range((len(longest) + 1) // 2):
            worker.todo.appendleft(longest.pop())

    def _receive(self, worker: Worker) -> None:
        assert worker.connection is not None
        try:
            result: Result = worker.connection.recv()
        except (EOFError, ConnectionError):
            self._replace(worker)
            return
        hook = self._session.config.hook
        for warning, when, nodeid in result.warnings:
            hook.pytest_warning_recorded.call_historic(
                kwargs={
                    "warning_message": warning,
                    "when": when,
                    "nodeid": nodeid,
                    "location": None,
                }
            )
        for data in result.reports:
            report = hook.pytest_report_from_serializable(config=self._session.config, data=data)
            hook.pytest_runtest_logreport(report=report)
        leftovers.FOUND.update(result.leftovers)
        if result.failure:
            self._fail(f"worker {worker.number}", ("", None, ""), result.failure)
        if result.is_last:
            self._end(worker)
        elif worker.given:
            worker.since = time.monotonic()
            worker.given.popleft()
            self._give(worker)

    def _end(self, worker: Worker) -> int:
        assert worker.connection is not None
        worker.connection.close()
        worker.connection = None
        return os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1])

    def _replace(self, worker: Worker) -> None:
        """A worker has died."""
        reason = f"the process that ran it ended, with status {self._end(worker)}"
        if worker.since == math.inf:
            reason = "it did not end when its time was over: its process was aborted"
        given = [index for index in worker.given if index is not None]
        if not given:
            self._fail(f"worker {worker.number}", ("", None, ""), reason)
            return
        item = self._session.items[given[0]]
        self._fail(item.nodeid, item.location, reason)
        worker.todo.extendleft(reversed(given[1:]))
        self._start(worker)

    def _fail(self, nodeid: str, location: tuple[str, int | None, str], reason: str) -> None:
        report = pytest.TestReport(nodeid, location, {}, "failed", reason, "call")
        self._session.config.hook.pytest_runtest_logreport(report=report)


# In a worker


class Sender:
    """Collects what pytest reports of a test."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self.result = Result()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self.result.reports.append(data)

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str
    ) -> None:
        about = warning_message
        plain = warnings.WarningMessage(
            str(about.message), about.category, about.filename, about.lineno
        )
        self.result.warnings.append((plain, when, nodeid))

    def taken(self) -> Result:
        result, self.result = self.result, Result()
        return result


def _work(session: pytest.Session, connection: Connection, place: Place, number: int) -> NoReturn:
    """Run the tests that are given. Nothing of the first process is ended here."""
    config: Any = session.config
    sender = Sender(config)
    status = 0
    try:
        with place():
            _become_worker(config, sender, number)
            _run_given(session, connection, sender)
            config.hook.pytest_sessionfinish(session=session, exitstatus=session.exitstatus)
            config._ensure_unconfigure()
            sender.result.leftovers = leftovers.left()
    except BaseException:  # noqa: BLE001 - the first process reports it
        sender.result.failure = traceback.format_exc()
        status = 1
    try:
        last = sender.taken()
        last.is_last = True
        connection.send(last)
    except OSError:
        status = 1  # nobody listens any more
    finally:
        os._exit(status)


class CapturedTerminal:
    """Where the stacks of a test that is over its time are written: to its own stderr, which is reported."""

    @property
    def _tw(self) -> TerminalWriter:  # the name that pytest looks for
        return TerminalWriter(sys.stderr)


def _become_worker(config: Any, sender: Sender, number: int) -> None:
    config.workerinput = {}  # with this, plugins of pytest leave files of the whole run alone
    plugins = config.pluginmanager
    _capture_apart(plugins.getplugin("capturemanager"))
    plugins.unregister(plugins.getplugin("terminalreporter"))
    plugins.register(CapturedTerminal(), "terminalreporter")
    plugins.register(sender)
    paths = config._tmp_path_factory
    paths._given_basetemp = paths.getbasetemp() / f"w{number}"
    paths._basetemp = None
    paths._exit_stack = ExitStack()  # what it held is the first process's to remove


def _capture_apart(manager: Any) -> None:
    """Put files of our own in the place of those that all forks share. Modules may hold the objects around them."""
    streams = manager._global_capturing
    for capture in () if streams is None else (streams.out, streams.err):
        if isinstance(capture, FDCapture):
            with TemporaryFile() as own:
                os.dup2(own.fileno(), capture.tmpfile.fileno())


def _run_given(session: pytest.Session, connection: Connection, sender: Sender) -> None:
    current = _next(session, connection)
    while current is not None:
        following = _next(session, connection)
        session.config.hook.pytest_runtest_protocol(item=current, nextitem=following)
        if session.shouldfail or session.shouldstop:
            following = None
        connection.send(sender.taken())
        current = following


def _next(session: pytest.Session, connection: Connection) -> pytest.Item | None:
    try:
        index: int | None = connection.recv()
    except EOFError:  # the run was stopped
        return None
    return None if index is None else session.items[index]
