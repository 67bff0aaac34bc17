"""Prints the values of secrets: a process of its own, so that a keyring that waits can be ended.

`python -m mcp_workbench.config.secret_helper KIND JSON`, started by `secret_sources`. It also keeps
`keyring` and `cryptography` out of the memory of the process that serves hosts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import msgspec

from mcp_workbench.config.secret_store import SecretStore
from mcp_workbench.config.state_home import state_home
from mcp_workbench.core.errors import SecretUnavailable

KEYRING = "WB-SEC-601"
INSTALL = "pip install 'mcp-workbench-gateway[keyring]'"
UNLOCK = "unlock the keyring, then call the server again"


class KeyringEntry(msgspec.Struct, frozen=True):
    """One entry of a keyring."""

    service: str
    username: str


class HelperAnswer(msgspec.Struct, frozen=True):
    """What is printed: values, and the others with code, message and fix."""

    values: dict[str, str] = {}
    failures: dict[str, tuple[str, str, str]] = {}

    def __repr__(self) -> str:
        return "HelperAnswer()"  # it holds secrets


def main() -> None:
    kind, request = sys.argv[1:]
    outcomes: dict[str, str | SecretUnavailable]
    if kind == "store":
        outcomes = _from_store(msgspec.json.decode(request, type=list[str]))
    else:
        entries = msgspec.json.decode(request, type=dict[str, KeyringEntry])
        outcomes = dict(_from_keyring(entries))
    answer = HelperAnswer(
        {name: value for name, value in outcomes.items() if isinstance(value, str)},
        {n: (e.code, e.message, e.hint) for n, e in outcomes.items() if not isinstance(e, str)},
    )
    sys.stdout.buffer.write(msgspec.json.encode(answer))


def _from_store(names: list[str]) -> dict[str, str | SecretUnavailable]:
    try:
        return SecretStore(state_home(os.environ)).read(names)
    except SecretUnavailable as error:
        return dict.fromkeys(names, error)


def _from_keyring(
    entries: dict[str, KeyringEntry],
) -> Iterator[tuple[str, str | SecretUnavailable]]:
    try:
        import keyring
        from keyring.errors import KeyringError, KeyringLocked, NoKeyringError
    except ImportError:
        message = "the package keyring is not installed"
        error = SecretUnavailable(KEYRING, message, hint=INSTALL)
        yield from ((name, error) for name in entries)
        return
    for name, entry in entries.items():
        where = f"{entry.service} {entry.username}"
        try:
            value = keyring.get_password(entry.service, entry.username)
        except NoKeyringError:
            message = "there is no keyring here that could be used"
            fix = (
                "start one, or use the store, a file or a command: mcp-workbench explain WB-SEC-601"
            )
            yield name, SecretUnavailable(KEYRING, message, hint=fix)
        except KeyringLocked:
            yield name, SecretUnavailable(KEYRING, "the keyring is locked", hint=UNLOCK)
        except (KeyringError, EOFError) as error:  # the latter: it wants to ask on a terminal
            message = f"the keyring gives no value: {type(error).__name__}"
            yield name, SecretUnavailable(KEYRING, message, hint=UNLOCK)
        else:
            missing = f"the keyring has no entry '{where}'"
            fix = f"keyring set {where}"
            yield name, value or SecretUnavailable(KEYRING, missing, hint=fix)


if __name__ == "__main__":
    main()
