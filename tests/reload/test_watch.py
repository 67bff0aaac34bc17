"""A file is read when it has changed and rests, in whatever way it was written."""

import json
import os
import queue
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mcp_workbench.config import load as watch
from mcp_workbench.config.load import FileWatch, LoadResult
from mcp_workbench.core.errors import ConfigError
from mcp_workbench.core.spec import Snapshot
from tests.kit.clock import PATIENCE, eventually

writing = threading.Lock()  # while somebody writes in several steps, nobody looks


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks follow each other quickly, and none of them falls between two steps of a writer."""
    stamp_of = watch.stamp_of

    def stamp(path: str) -> watch.Stamp:
        with writing:
            return stamp_of(path)

    monkeypatch.setattr(watch, "stamp_of", stamp)
    monkeypatch.setattr(watch, "POLL", 0.01)
    monkeypatch.setattr(watch, "SETTLE", 0.02)
    monkeypatch.setattr(watch, "DOUBT", 0.02)


def text(*servers: str) -> str:
    return json.dumps({"mcpServers": {name: {"command": "true"} for name in servers}}, indent=1)


class Watched:
    """What a watch has found, in order."""

    def __init__(self) -> None:
        self._queue: queue.Queue[LoadResult] = queue.Queue()
        self.found = self._queue.put

    def next(self) -> list[str] | str:
        """The names of the servers, or the first problem's code."""
        found = self._queue.get(timeout=PATIENCE)
        if isinstance(found, ConfigError):
            return found.problems[0].code
        assert isinstance(found, Snapshot)
        return list(found.toolboxes["default"].servers)

    @property
    def nothing(self) -> bool:
        return self._queue.empty()


@contextmanager
def watching(path: Path, *, optional: bool = False) -> Generator[tuple[Watched, FileWatch]]:
    seen = Watched()
    one = FileWatch(str(path), seen.found, optional=optional)
    one.start()
    try:
        yield seen, one
    finally:
        one.end()


def in_place(path: Path, data: str) -> None:
    path.write_text(data)


def renamed(path: Path, data: str) -> None:
    beside = path.with_suffix(".tmp")
    beside.write_text(data)
    beside.replace(path)


def with_backup(path: Path, data: str) -> None:
    """The old file is moved away first, as some editors do."""
    path.replace(path.with_suffix(".bak"))
    path.write_text(data)


def linked(path: Path, data: str) -> None:
    target = path.with_name(f"to-{len(list(path.parent.iterdir()))}.json")
    target.write_text(data)
    link = path.with_suffix(".lnk")
    link.symlink_to(target)
    link.replace(path)


def behind_a_link(path: Path, data: str) -> None:
    """What the link leads to is written, the link itself stays."""
    if not path.is_symlink():
        path.replace(path.with_name("real.json"))
        path.symlink_to("real.json")
    path.resolve().write_text(data)


def with_the_old_time(path: Path, data: str) -> None:
    """As by `cp -p`: same size, same time of writing."""
    before = path.stat()
    path.write_text(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize(
    "save", [in_place, renamed, with_backup, linked, behind_a_link, with_the_old_time]
)
def test_every_way_of_saving_is_seen(tmp_path: Path, save: Callable[[Path, str], None]) -> None:
    path = tmp_path / "c.json"
    path.write_text(text("a"))
    with watching(path) as (seen, _):
        assert seen.next() == ["a"]  # as it is now: it may have changed since it was loaded

        with writing:
            save(path, text("b"))
        assert seen.next() == ["b"]
        with writing:
            save(path, text("c"))
        assert seen.next() == ["c"]


@pytest.mark.fault("F55")
def test_a_slow_writer_s_file_is_found_once_and_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "c.json"
    path.write_text(text("a"))
    half, rest = text("b")[:20], text("b")[20:]
    read: list[str] = []
    load = watch.load_config

    def load_between_two_writes(file: str, *, named: bool) -> Snapshot:
        read.append(path.read_text())
        try:
            return load(file, named=named)
        finally:
            if read[-1] == half:
                with path.open("a") as slow:
                    slow.write(rest)

    monkeypatch.setattr(watch, "load_config", load_between_two_writes)
    with watching(path) as (seen, _):
        assert seen.next() == ["a"]
        renamed(path, half)

        assert seen.next() == ["b"]
        assert read == [text("a"), half, text("b")]


@pytest.mark.fault("F55")
def test_half_a_file_that_stays_so_is_a_finding_and_the_rest_mends_it(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(text("a"))
    with watching(path) as (seen, _):
        assert seen.next() == ["a"]
        renamed(path, text("b")[:20])
        assert seen.next() == "WB-CONF-007"
        path.write_text("")
        assert seen.next() == "WB-CONF-004"
        path.unlink()
        assert seen.next() == "WB-CONF-001"
        path.mkdir()
        assert seen.next() == "WB-CONF-002"
        with writing:
            path.rmdir()
            path.write_text(text("b"))
        assert seen.next() == ["b"]


def test_a_file_that_everybody_may_write_is_refused_until_it_is_not(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(text("a"))
    with watching(path) as (seen, _):
        assert seen.next() == ["a"]
        path.chmod(0o666)
        assert seen.next() == "WB-CONF-006"
        path.chmod(0o600)
        assert seen.next() == ["a"]


def test_a_file_that_was_never_there_is_not_missed_but_found_when_it_comes(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    with watching(path, optional=True) as (seen, one):
        one.look()
        # Taken up: a look that is still due when the file has come reads it once more.
        eventually(lambda: not one._wake.is_set(), "it looks")  # pyright: ignore[reportPrivateUsage]
        renamed(path, text("a"))
        assert seen.next() == ["a"]
        path.unlink()
        assert seen.next() == "WB-CONF-001"
        assert seen.nothing


def test_whoever_asks_does_not_wait_for_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "POLL", 3600.0)
    path = tmp_path / "c.json"
    path.write_text(text("a"))
    with watching(path) as (seen, one):
        one.look()
        assert seen.next() == ["a"]
        renamed(path, text("b"))
        one.look()
        assert seen.next() == ["b"]
