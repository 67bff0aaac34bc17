"""The keyring of GNOME, without a desktop: it gives values while it is unlocked, and nobody is asked when it is locked."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.command import newcomer
from tests.kit.config import config_file, entry
from tests.secrets.scenes import needing

PROGRAMS = ("dbus-run-session", "gnome-keyring-daemon")
VALUE = "in-the-secret-service"
# Runs in a session bus of its own; prints what the command says before and after the keyring is locked.
SCRIPT = """
import json, subprocess, sys

def run(*argv, **more):
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, **more)

run("gnome-keyring-daemon", "--unlock", "--components=secrets", "--daemonize", input="password", check=True)
import keyring, secretstorage
keyring.set_password("mcp-workbench", "IT", sys.argv[1])
command = (sys.executable, "-m", "mcp_workbench")
unlocked = run(*command, "call", "dev/a/env", "--json")
collection = secretstorage.get_default_collection(secretstorage.dbus_init())
collection.lock()
locked = run(*command, "check", "--connect", "--json")
print(json.dumps([unlocked.stdout, locked.stdout]))
"""


@pytest.mark.skipif(
    not all(map(shutil.which, PROGRAMS)), reason=f"needs {' and '.join(PROGRAMS)} of GNOME"
)
def test_the_keyring_of_gnome_gives_its_values_while_it_is_unlocked(tmp_path: Path) -> None:
    person = newcomer(tmp_path)
    config_file(person.folder, {"a": needing("IT"), "b": entry()}, secrets={"IT": "keyring"})
    runtime = tmp_path / "runtime"
    runtime.mkdir(0o700)
    libraries = {k: os.environ[k] for k in ("PATH", "LD_LIBRARY_PATH") if k in os.environ}
    env = person.environ(
        XDG_RUNTIME_DIR=str(runtime),
        PYTHON_KEYRING_BACKEND="keyring.backends.SecretService.Keyring",
    )
    ran = subprocess.run(
        ["dbus-run-session", "--", sys.executable, "-c", SCRIPT, VALUE],
        cwd=person.folder,
        env=env | libraries,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    unlocked, locked = map(json.loads, json.loads(ran.stdout.splitlines()[-1]))

    assert VALUE in unlocked["content"][0]["text"]
    assert {s["server"]: s["available"] for s in locked["servers"]} == {"a": False, "b": True}
    assert "the keyring is locked" in locked["servers"][0]["reason"]
