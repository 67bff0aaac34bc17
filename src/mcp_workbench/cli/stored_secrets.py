"""Literal secrets that `import` and `add` find: into the encrypted store, if the user wants that."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

import click

from mcp_workbench.cli.file_changes import Agreement, can_ask
from mcp_workbench.cli.settings import Decorated, Settings, variable
from mcp_workbench.cli.terminal import glyph, say
from mcp_workbench.config.expand import Environment
from mcp_workbench.config.secret_store import SecretStore, can_encrypt, require_cryptography
from mcp_workbench.config.state_home import state_home
from mcp_workbench.core.errors import SecretUnavailable
from mcp_workbench.hosts.own_config import STORE, ConfigFile, stored_names
from mcp_workbench.hosts.secrets import ExtractedSecret


def secrets_option(command: str) -> Callable[[Decorated], Decorated]:
    """Returns `--secrets`, for a command that replaces literal secrets by variables."""
    return click.option(
        "--secrets",
        type=click.Choice([STORE, "variables"]),
        help="Where the values of literal secrets go: into the encrypted store, or nowhere, so that you "
        "set the variables.  [default: variables; a terminal asks]",
        **variable(f"{command}_SECRETS"),
    )


def wants_store(settings: Settings, option: str | None, count: int, agreed: Agreement) -> bool:
    """Do so many literal secrets go into the store? Raises SecretUnavailable if they can't."""
    if option == STORE:
        require_cryptography()
        return True
    if option or not count or agreed.yes or agreed.dry_run or not can_ask(settings):
        return False
    if not can_encrypt():
        return False
    what = "1 literal secret was found" if count == 1 else f"{count} literal secrets were found"
    say(f"{what}; in the encrypted store of this user, the servers work at once", err=True)
    it = "it" if count == 1 else "them"
    return click.confirm(f"move {it} there?", default=True, err=True)


def own_store() -> SecretStore:
    return SecretStore(state_home(os.environ))


def stored_values() -> dict[str, str]:
    """Returns all values in the store. Raises SecretUnavailable if one can't be read."""
    values = own_store().read(own_store().names())
    for value in values.values():
        if isinstance(value, SecretUnavailable):
            raise value
    return {name: value for name, value in values.items() if isinstance(value, str)}


def stored_values_of(config: ConfigFile) -> dict[str, str]:
    """Returns the values that this configuration takes from the store, as far as they can be read."""
    names = stored_names(config)
    if not names or not can_encrypt():
        return {}
    try:
        values = own_store().read(names)
    except SecretUnavailable:
        return {}
    return {name: value for name, value in values.items() if isinstance(value, str)}


def with_values(values: Mapping[str, str], *, stored: bool) -> Mapping[str, str]:
    """Returns our environment with these values, in which new servers are tried."""
    return Environment(os.environ, values) if stored else {**os.environ, **values}


def store(taken: Iterable[ExtractedSecret], values: Mapping[str, str]) -> None:
    """Keeps the values of these secrets. Raises SecretUnavailable."""
    chosen = {secret.variable: values[secret.variable] for secret in taken}
    if chosen:
        own_store().write(chosen)


def say_stored(taken: Iterable[ExtractedSecret]) -> None:
    """Says which secrets are in the store now."""
    names = sorted({secret.variable for secret in taken})
    if names:
        line = f"in the encrypted store: {', '.join(names)}   (mcp-workbench secret list)"
        say(f"{glyph('good')} {line}", err=True)
