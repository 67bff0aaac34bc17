"""The environment that hosts give their servers, and what an imported server keeps of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, cast

from mcp_workbench.config.expand import names_a_secret
from mcp_workbench.hosts.read import Entry
from mcp_workbench.hosts.table import HOSTS

KEY = "inheritEnv"
# Variables that servers use although their entries do not name them.
KNOWN = (
    "AWS_*", "AZURE_*", "ARM_*", "GOOGLE_*", "CLOUDSDK_*", "GCLOUD_*", "KUBECONFIG", "DOCKER_*",
    "SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "GIT_*", "VAULT_ADDR", "TF_*",
    "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS", "BROWSER", "CHROME_PATH",
    "JAVA_HOME", "ANDROID_HOME", "GOPATH", "CARGO_HOME", "NVM_DIR", "PYENV_ROOT", "VIRTUAL_ENV",
    "PLAYWRIGHT_BROWSERS_PATH", "PUPPETEER_EXECUTABLE_PATH", "NPM_CONFIG_*", "npm_config_*", "UV_*",
)  # fmt: skip


def with_environment(host: str, entry: Entry) -> Entry:
    """Returns our entry with what its host passes on to it; unchanged if that is little, or unknown."""
    known = HOSTS.get(host)
    if "command" not in entry or known is None or not known.inherits:
        return entry
    return {**entry, KEY: list(known.inherits)}


def without_secrets(entry: Entry, variables: Iterable[str], reserved: Iterable[str]) -> Entry:
    """Returns the entry, which does not inherit the secrets of others.

    `variables` are new: their values were in other entries of the host. So may have been those of
    `reserved`, which our file uses already.
    """
    if KEY not in entry:
        return entry
    secrets = {*variables, *filter(names_a_secret, reserved)}
    patterns = [*entry[KEY], *(f"!{name}" for name in sorted(secrets))]
    return {**entry, KEY: True if patterns == ["*"] else patterns}


def is_uncertain(host: str, entry: Entry) -> bool:
    """Do we not know which variables this host gives its servers?"""
    known = HOSTS.get(host)
    return "command" in entry and known is not None and known.inherits is None


def known_variables(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the variables of this environment that servers often use without naming them."""
    return tuple(name for name in environ if any(fnmatchcase(name, pattern) for pattern in KNOWN))


def inherited_names(entries: Iterable[Entry]) -> tuple[str, ...]:
    """Returns the variables that these entries of ours inherit by their names."""
    values = [entry.get(KEY) for entry in entries]
    names = [
        str(name)
        for value in values
        if isinstance(value, list)
        for name in cast("list[Any]", value)
    ]
    return tuple(name for name in names if not any(sign in name for sign in "*?[!"))
