"""Credential files: private to their user, written in one step, and harmless if they are damaged."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import stat
import subprocess
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_workbench.protocol.oauth import OAuthClient, SignInFailed
from mcp_workbench.upstream.oauth.store import (
    ClientStore,
    Credential,
    CredentialStore,
    of_principals,
)
from tests.kit.clock import PATIENCE
from tests.kit.command import COMMAND, TIMEOUT, Done, typed
from tests.kit.config import config_file
from tests.kit.forked import Streams
from tests.kit.root import needs_root
from tests.kit.sign_in_server import SignInServer, browser, sign_in_server

pytestmark = pytest.mark.usefixtures("forked_commands", "no_self_test")

URL = "https://server.example/mcp"
CREDENTIAL = Credential(
    URL,
    "https://a.example",
    "https://a.example/token",
    URL,
    OAuthClient("us", "canary-client-secret"),
    "canary-access",
    "canary-refresh",
    expires_at=2e9,
)
NOBODY = 65534


@pytest.fixture
def server() -> Generator[SignInServer]:
    with sign_in_server() as running:
        yield running


class SignedIn(NamedTuple):
    """A server, a state folder whose owner is signed in there, and what makes the server know that again."""

    server: SignInServer
    home: Path
    restore: Callable[[], None]


@pytest.fixture(scope="module")
def signed_in(tmp_path_factory: pytest.TempPathFactory) -> Generator[SignedIn]:
    folder = tmp_path_factory.mktemp("signed-in")
    with sign_in_server() as running:
        assert command(folder, running, "login", "dev/p").status == 0
        yield SignedIn(running, folder / "home", running.checkpoint())


@pytest.fixture
def member_server(tmp_path: Path, signed_in: SignedIn) -> SignInServer:
    """A server at which the state folder of this test is signed in: a copy for each."""
    signed_in.restore()
    shutil.copytree(signed_in.home, tmp_path / "home")
    return signed_in.server


def command(folder: Path, server: SignInServer, *words: str, **env: str) -> Done:
    config = folder / "workbench-config.json"
    if not config.exists():
        config_file(folder, {"p": {"url": server.url, "connectTimeout": 15}})
    env = {**browser(), "MCP_WORKBENCH_HOME": str(folder / "home"), **env}
    return typed([*words, "--config", str(config)], folder, Streams(), env)


def modes(folder: Path) -> dict[str, int]:
    kinds = {True: "folder", False: "file"}
    paths = [folder, *folder.rglob("*")]
    return {
        f"{kinds[path.is_dir()]} {path.suffix}": stat.S_IMODE(path.stat().st_mode) for path in paths
    }


def test_files_are_private_whatever_the_umask_is(tmp_path: Path, server: SignInServer) -> None:
    config = config_file(tmp_path, {"p": {"url": server.url, "connectTimeout": 15}})
    env = {**browser(), "MCP_WORKBENCH_HOME": str(tmp_path / "home")}
    argv = [*COMMAND, "login", "dev/p", "--config", str(config)]
    subprocess.run(argv, env=env, umask=0, check=True, capture_output=True, timeout=TIMEOUT)

    assert modes(tmp_path / "home" / "credentials") == {
        "folder ": 0o700,
        "file .json": 0o600,
        "file .lock": 0o600,
    }
    assert stat.S_IMODE((tmp_path / "home").stat().st_mode) == 0o700


def test_a_file_is_replaced_in_one_step(tmp_path: Path) -> None:
    """Whoever has the old one open reads the old one, whole; nothing is left of the writing."""
    store = CredentialStore(str(tmp_path), URL)
    store.write(CREDENTIAL)
    [path] = (tmp_path / "credentials").iterdir()
    with path.open() as old:
        store.write(Credential(URL, "https://b.example", "", URL, OAuthClient("us")))
        assert json.load(old)["issuer"] == "https://a.example"

    assert [path] == list((tmp_path / "credentials").iterdir())
    assert json.loads(path.read_text())["issuer"] == "https://b.example"


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o701, 0o777])
def test_a_folder_that_is_open_to_others_is_refused(
    tmp_path: Path, member_server: SignInServer, mode: int
) -> None:
    server = member_server
    folder = tmp_path / "home" / "credentials"
    folder.chmod(mode)

    done = command(tmp_path, server, "login", "dev/p")
    called = command(tmp_path, server, "call", "dev/p/whoami")
    out = command(tmp_path, server, "logout", "dev/p")

    for one in (done, out):
        assert one.status == 1
        assert "WB-AUTH-011" in one.err
        assert f"is open to other users: chmod 700 {folder}" in one.err
    assert called.status == 4
    assert "needs login" in called.err
    folder.chmod(0o700)
    assert command(tmp_path, server, "call", "dev/p/whoami").status == 0


@needs_root("nobody else can give a folder away")
def test_a_folder_of_another_user_is_refused(tmp_path: Path, member_server: SignInServer) -> None:
    server = member_server
    folder = tmp_path / "home" / "credentials"
    os.chown(folder, NOBODY, NOBODY)

    done = command(tmp_path, server, "login", "dev/p")

    assert "WB-AUTH-011" in done.err
    assert "belongs to another user" in done.err
    assert "needs login" in command(tmp_path, server, "call", "dev/p/whoami").err


def test_a_home_that_can_not_be_written_is_told(tmp_path: Path, server: SignInServer) -> None:
    home = tmp_path / "home"
    home.mkdir(0o700)
    (home / "credentials").touch()

    done = command(tmp_path, server, "login", "dev/p")

    assert done.status == 1
    assert "WB-AUTH-011" in done.err


# Damage

DAMAGED: dict[str, bytes] = {
    "nothing": b"",
    "half": b'{"url": "https://server.exam',
    "no UTF-8": b'{"url": "\xff\xfe", "issuer": "x"}',
    "another shape": b"[]",
    "other types": b'{"url": 1, "issuer": []}',
    "deep": b"[" * 100_000,
    "a token with a line end": b'{"access_token": "a\\r\\nX: y"}',
    "a token of other letters": '{"access_token": "\u4e2d"}'.encode(),
    "a time that is none": b'{"expires_at": 1e300, "access_token": "canary"}',
    "a time before all": b'{"expires_at": -1e300, "access_token": "canary"}',
    "an endpoint that is none": b'{"token_endpoint": "%%%", "access_token": "x", "expires_at": 1, "refresh_token": "r"}',
}


def damaged(path: Path, content: bytes) -> None:
    """With the members that are missing in it, so that what is wrong is wrong by itself."""
    whole = json.loads(path.read_text())
    try:
        path.write_bytes(json.dumps({**whole, **json.loads(content)}).encode())
    except (ValueError, TypeError, RecursionError):
        path.write_bytes(content)


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_means_that_nobody_is_signed_in(
    tmp_path: Path, member_server: SignInServer, name: str
) -> None:
    server = member_server
    for path in (tmp_path / "home" / "credentials").glob("*.json"):
        damaged(path, DAMAGED[name])
    server.end_tokens()

    for words in (("status",), ("doctor",), ("check", "--connect"), ("tools", "--refresh")):
        assert command(tmp_path, server, *words).status in (0, 1, 4)
    called = command(tmp_path, server, "call", "dev/p/whoami")
    assert called.status == 4
    again = command(tmp_path, server, "login", "dev/p")
    assert again.status == 0, again.err
    assert command(tmp_path, server, "call", "dev/p/whoami").status == 0


VALUES = st.one_of(
    st.none(), st.floats(), st.integers(), st.text(max_size=9), st.lists(st.text(max_size=3))
)
OBJECTS = st.dictionaries(st.sampled_from(Credential.__struct_fields__), VALUES)


@given(st.binary(max_size=200) | OBJECTS.map(lambda members: json.dumps(members).encode()))
@settings(deadline=None)
def test_whatever_stands_in_the_file_reading_it_raises_nothing(content: bytes) -> None:
    home = os.environ["MCP_WORKBENCH_HOME"]
    store = CredentialStore(home, URL)
    store.write(CREDENTIAL)
    [path] = Path(home, "credentials").glob("*.json")
    damaged(path, content)

    credential = store.read()

    if credential is not None:
        credential.access_token.encode("latin-1")
        assert 0 <= credential.due_at + 60 < 2e11


@pytest.mark.parametrize("kind", ["folder", "pipe", "link"])
def test_what_is_no_plain_file_is_not_read(tmp_path: Path, kind: str) -> None:
    store = CredentialStore(str(tmp_path), URL)
    store.write(CREDENTIAL)
    [path] = (tmp_path / "credentials").iterdir()
    data = path.read_bytes()
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        (tmp_path / "elsewhere").write_bytes(data)
        path.symlink_to(tmp_path / "elsewhere")

    assert store.read() is None
    if kind == "folder":
        with pytest.raises(SignInFailed, match="can't be kept"):
            store.write(CREDENTIAL)
        with pytest.raises(SignInFailed, match="can't be kept"):
            store.delete()


# Several at once


def test_two_that_sign_in_at_once_both_succeed(tmp_path: Path, server: SignInServer) -> None:
    config_file(tmp_path, {"p": {"url": server.url, "connectTimeout": 15}})
    with ThreadPoolExecutor(2) as both:
        logins = [both.submit(command, tmp_path, server, "login", "dev/p") for _ in range(2)]
        done = [login.result() for login in logins]

    assert [one.status for one in done] == [0, 0], done
    assert server.count("/authorize") == 2
    called = command(tmp_path, server, "call", "dev/p/whoami")
    assert called.status == 0, called.err
    before = server.refreshes  # one that finds the other's client asks whether it is still known
    server.end_tokens()
    assert command(tmp_path, server, "call", "dev/p/whoami").status == 0
    assert server.refreshes == before + 1


async def test_the_lock_is_one_for_all_and_its_wait_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (CredentialStore(str(tmp_path), URL) for _ in range(2))
    monkeypatch.setattr("mcp_workbench.upstream.oauth.store.PATIENCE", 0.1)
    async with asyncio.timeout(PATIENCE), one.locked():
        with pytest.raises(SignInFailed, match="another process") as failed:
            async with other.locked():
                pytest.fail("it is held")
        assert failed.value.code == "WB-AUTH-011"
    async with other.locked():
        pass


# Of several people, and several replicas


def test_those_of_other_people_are_found_among_all(tmp_path: Path) -> None:
    home = str(tmp_path)
    assert of_principals(home) == []
    CredentialStore(home, URL).write(CREDENTIAL)
    ClientStore(home, "https://a.example").write(OAuthClient("us"))
    theirs = [msgspec.structs.replace(CREDENTIAL, principal=name) for name in ("ann", "bob")]
    for credential in theirs:
        CredentialStore(home, URL, principal=credential.principal).write(credential)
    folder = tmp_path / "credentials"
    (folder / "half.json").write_text("{")
    (folder / "half.json").chmod(0o600)
    (folder / "other.txt").write_bytes(msgspec.json.encode(theirs[0]))

    assert sorted(of_principals(home), key=lambda one: one.principal) == theirs


def test_what_was_signed_out_of_is_gone_and_told_once(tmp_path: Path) -> None:
    store = CredentialStore(str(tmp_path), URL)
    store.write(CREDENTIAL)

    assert store.read() == CREDENTIAL
    assert [store.delete(), store.delete()] == [True, False]
    assert store.read() is None


@pytest.mark.parametrize(
    ("issuer", "found"),
    [
        ("", True),
        ("https://a.example", True),
        ("https://a.example/", True),
        ("https://b.example", False),
    ],
)
def test_only_a_sign_in_at_the_issuer_that_the_operator_names_is_used(
    tmp_path: Path, issuer: str, found: bool
) -> None:
    store = CredentialStore(str(tmp_path), URL)
    store.write(CREDENTIAL)
    store.issuer = issuer

    assert (store.read() == CREDENTIAL) is found


class Replicas:
    """The other replicas: what they have, and what they were told."""

    def __init__(self, theirs: Credential | None) -> None:
        self.theirs = theirs
        self.told: list[tuple[str, str]] = []

    async def newer(self, name: str, local: Credential | None) -> Credential | None:
        self.told.append(("newer", local.access_token if local else ""))
        return self.theirs

    def publish(self, name: str, credential: Credential) -> None:
        self.told.append(("publish", credential.access_token))

    def offer(self, name: str, credential: Credential) -> None:
        self.told.append(("offer", credential.access_token))

    @asynccontextmanager
    async def lease(self, name: str) -> AsyncGenerator[None]:
        self.told.append(("lease", name))
        yield
        self.told.append(("end", name))


async def test_under_the_lock_of_all_replicas_the_newest_credential_is_there(
    tmp_path: Path,
) -> None:
    CredentialStore(str(tmp_path), URL).write(CREDENTIAL)
    newer = msgspec.structs.replace(CREDENTIAL, access_token="newer")
    newest = msgspec.structs.replace(CREDENTIAL, access_token="newest")
    replicas = Replicas(newer)
    store = CredentialStore(str(tmp_path), URL, shared=replicas)

    async with store.locked():
        assert CredentialStore(str(tmp_path), URL).read() == newer
        store.write(newest)

    assert CredentialStore(str(tmp_path), URL).read() == newest
    assert replicas.told == [
        ("lease", store.name),
        ("offer", "canary-access"),
        ("newer", "canary-access"),
        ("publish", "newest"),
        ("end", store.name),
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"url": "https://other.example/mcp"},
        {"access_token": "a\r\nX: y"},
        {"issuer": "https://b.example"},
    ],
    ids=["another server", "no token", "another issuer"],
)
async def test_what_a_replica_has_for_others_is_not_taken(
    tmp_path: Path, changes: dict[str, str]
) -> None:
    store = CredentialStore(
        str(tmp_path), URL, shared=Replicas(msgspec.structs.replace(CREDENTIAL, **changes))
    )
    store.issuer = "https://a.example"
    store.write(CREDENTIAL)

    await store.refresh()

    assert CredentialStore(str(tmp_path), URL).read() == CREDENTIAL
