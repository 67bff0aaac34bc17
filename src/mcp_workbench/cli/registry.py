"""One request to an MCP registry: the server.json of a name."""

import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from mcp_workbench.core.errors import InvalidCall, NotFound, WorkbenchError
from mcp_workbench.timing import deadline

PATIENCE = deadline(20.0)  # seconds for an answer
MOST_BYTES = 4 << 20  # of an answer
_LATEST = "latest"


class RegistryFailed(WorkbenchError):
    """The registry can't be reached, or its answer can't be used."""

    code = "registry_failed"


def fetched(registry: str, source: str) -> Any:
    """Returns what the registry has under `NAME` or `NAME@VERSION`."""
    if urlsplit(registry).scheme not in ("http", "https"):
        raise InvalidCall("--registry must begin with http:// or https://")
    name, _, version = source.partition("@")
    path = f"v0.1/servers/{quote(name, safe='')}/versions/{quote(version or _LATEST, safe='')}"
    url = f"{registry.rstrip('/')}/{path}"
    # The scheme is checked above; redirects of this opener stay with http and https.
    request = urllib.request.Request(url, headers={"Accept": "application/json"})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310
            data = answer.read(MOST_BYTES + 1)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 404:
                raise _unknown(source, registry) from None
            raise RegistryFailed(f"the registry answered {error.code} to {url}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise RegistryFailed(f"the registry can't be reached: {reason}", hint=url) from None
    if len(data) > MOST_BYTES:
        raise RegistryFailed(f"the registry's answer is larger than {MOST_BYTES >> 20} MiB")
    try:
        return msgspec.json.decode(data)
    except (ValueError, RecursionError):
        raise RegistryFailed(f"what is at {url} is no JSON", hint="check --registry") from None


def _unknown(source: str, registry: str) -> NotFound:
    hint = "names are complete, such as com.example/notes; a version follows an @"
    return NotFound("unknown_server", f"'{source}' is not in the registry {registry}", hint=hint)
