"""Which package a server's launch line leads to on this machine: as `lock` records it."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from mcp_workbench.config.lock_records import launched_package, named_package
from mcp_workbench.core.spec import ServerSpec, StdioCommand

TIMEOUT = 10.0  # seconds for a container program to show an image
MOST_PACKAGES = 1000  # of npx that are looked at
MOST_BYTES = 1 << 20  # of a package.json


def resolved_package(spec: ServerSpec, environ: Mapping[str, str]) -> str:
    """Returns the package with its exact version, such as `npm:name@1.2.3`; empty if that is not known.

    The launch line comes first; then what npx has installed for it, or the digest of a container image.
    """
    if package := launched_package(spec):
        return package
    kind, name = named_package(spec)
    if kind == "npm":
        version = _npx_version(name, environ)
        return f"npm:{_base(name)}@{version}" if version else ""
    if kind == "oci" and isinstance(spec.target, StdioCommand) and "$" not in name:
        digest = _image_digest(spec.target.command, name)
        return f"oci:{digest}" if digest else ""
    return ""


def _base(name: str) -> str:
    """Returns the name of an npm package without its version or range."""
    return name[:1] + name[1:].partition("@")[0]  # a scope begins with the same sign


class _Npx(msgspec.Struct, frozen=True):
    packages: list[str] = []


class _Installed(msgspec.Struct, frozen=True):
    version: str = ""
    npx: _Npx = msgspec.field(default_factory=_Npx, name="_npx")


def _npx_version(name: str, environ: Mapping[str, str]) -> str:
    """Returns the version that npx has installed for exactly this name; empty if there is none."""
    home = environ.get("HOME", "")
    cache = environ.get("npm_config_cache") or (str(Path(home) / ".npm") if home else "")
    if not cache or not name:
        return ""
    folders = sorted((Path(cache) / "_npx").glob("*/package.json"))[:MOST_PACKAGES]
    for manifest in folders:
        if _installed(manifest).npx.packages == [name]:
            inner = manifest.parent / "node_modules" / _base(name) / "package.json"
            return _installed(inner).version
    return ""


def _installed(manifest: Path) -> _Installed:
    from mcp_workbench.config.file_access import read_plain

    try:
        return msgspec.json.decode(read_plain(manifest, MOST_BYTES), type=_Installed)
    except (OSError, msgspec.DecodeError):
        return _Installed()


def _image_digest(command: str, image: str) -> str:
    """Returns the image with its digest, as the container program has it; empty if it has none."""
    argv = [command, "image", "inspect", "--format", "{{json .RepoDigests}}", image]
    try:
        done = subprocess.run(  # noqa: S603 - the command of the configuration, which starts the server
            argv, capture_output=True, timeout=TIMEOUT, stdin=subprocess.DEVNULL, check=False
        )
        digests: Any = msgspec.json.decode(done.stdout) if done.returncode == 0 else []
    except (OSError, subprocess.TimeoutExpired, msgspec.DecodeError):
        return ""
    texts = cast("list[Any]", digests) if isinstance(digests, list) else []
    return next((text for text in texts if isinstance(text, str) and "@sha256:" in text), "")
