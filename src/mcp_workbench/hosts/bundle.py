"""An MCP bundle (`.mcpb`): a zip archive with a server and its manifest.

`read_bundle` checks the archive: no path out of its folder, no link, no bomb. `from_bundle` makes an
entry of its manifest, with the folder that it will be unpacked into. `unpack` does that in one step:
the folder is there as a whole or not at all. Its name has the digest of the archive, so that an
upgrade is another folder.
"""

import hashlib
import os
import re
import secrets
import shutil
import stat
import zipfile
import zlib
from pathlib import Path
from typing import Any, cast

import msgspec

from mcp_workbench.config.state_home import BUNDLES, private_folder
from mcp_workbench.core.errors import InvalidCall
from mcp_workbench.hosts.files import Machine
from mcp_workbench.hosts.plan import plain_name
from mcp_workbench.hosts.read import Entry, HostServer
from mcp_workbench.hosts.server_json import MOST_TEXT, Object, ValueSource, derived_variable

SUFFIXES = (".mcpb", ".dxt")
MANIFEST = "manifest.json"
MOST_MANIFEST = 1 << 20  # bytes
MOST_BYTES = 1 << 30  # unpacked
MOST_FILES = 50_000
_CHUNK = 1 << 20
_PLACE = re.compile(r"\$\{([^{}]*)\}")
_PLATFORMS = {"linux": "linux", "darwin": "darwin", "win32": "win32"}
_FOLDERS = {"DESKTOP": "Desktop", "DOCUMENTS": "Documents", "DOWNLOADS": "Downloads"}


class Bundle(msgspec.Struct, frozen=True):
    """An archive that was checked, and its manifest."""

    path: Path
    digest: str
    manifest: Object

    @property
    def name(self) -> str:
        return plain_name(str(self.manifest.get("name") or self.path.stem))

    @property
    def folder_name(self) -> str:
        return f"{self.name}-{self.digest[:16]}"


def is_bundle(path: Path) -> bool:
    return path.suffix in SUFFIXES and path.is_file()


def read_bundle(path: Path) -> Bundle:
    """Returns the bundle. Raises InvalidCall for an archive that can't be used."""
    try:
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        with zipfile.ZipFile(path) as archive:
            _check(archive)
            manifest = msgspec.json.decode(_manifest(archive), type=Object)
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, KeyError, RuntimeError) as error:
        raise _refused(path, f"it is no bundle: {error}") from None
    if not isinstance(manifest.get("server"), dict):
        raise _refused(path, "its manifest has no server")
    return Bundle(path, digest, manifest)


def _check(archive: zipfile.ZipFile) -> None:
    """Refuses an archive whose files would leave its folder, or fill the disk."""
    entries = archive.infolist()
    names = [entry.filename for entry in entries]
    if len(names) > MOST_FILES or len(set(names)) < len(names):
        raise zipfile.BadZipFile("it has too many files, or two of one name")
    if sum(entry.file_size for entry in entries) > MOST_BYTES:
        raise zipfile.BadZipFile(f"it is larger than {MOST_BYTES >> 20} MiB when unpacked")
    for entry in entries:
        parts = entry.filename.rstrip("/").split("/")
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if any(part in ("", ".", "..") or "\\" in part or ":" in part for part in parts):
            raise zipfile.BadZipFile(f"the path '{entry.filename}' leads out of its folder")
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise zipfile.BadZipFile(f"'{entry.filename}' is no plain file")


def _manifest(archive: zipfile.ZipFile) -> bytes:
    with archive.open(MANIFEST) as stream:
        data = stream.read(MOST_MANIFEST + 1)
    if len(data) > MOST_MANIFEST:
        raise zipfile.BadZipFile("its manifest is too large")
    return data


def _refused(path: Path, reason: str) -> InvalidCall:
    return InvalidCall(f"{path} can't be added: {reason}")


def unpack(bundle: Bundle, home: str) -> bool:
    """Unpacks the bundle; returns False if it was there already. Raises OSError."""
    parent = Path(private_folder(home, BUNDLES))
    target = parent / bundle.folder_name
    if target.exists():
        return False
    temporary = parent / f".{bundle.folder_name}.{secrets.token_hex(6)}"
    try:
        temporary.mkdir(0o700)
        with zipfile.ZipFile(bundle.path) as archive:
            _check(archive)  # it may be another file by now
            for entry in archive.infolist():
                _extract(archive, entry, temporary)
        temporary.rename(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return True


def _extract(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, folder: Path) -> None:
    path = folder / entry.filename
    if entry.is_dir():
        path.mkdir(0o700, parents=True, exist_ok=True)
        return
    path.parent.mkdir(0o700, parents=True, exist_ok=True)
    mode = 0o700 if (entry.external_attr >> 16) & 0o111 else 0o600
    number = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
    left = entry.file_size
    with os.fdopen(number, "wb") as out, archive.open(entry) as stream:
        while data := stream.read(_CHUNK):
            left -= len(data)
            if left < 0:
                raise OSError(f"{entry.filename} is larger than its archive says")
            out.write(data)


def remove(bundle: Bundle, home: str) -> None:
    """Removes an unpacked bundle."""
    shutil.rmtree(Path(home) / BUNDLES / bundle.folder_name, ignore_errors=True)


# The entry


def from_bundle(
    name: str, bundle: Bundle, home: str, values: ValueSource, machine: Machine
) -> HostServer:
    """Returns our entry for the server of a bundle."""
    manifest = bundle.manifest
    platforms = _object(manifest.get("compatibility")).get("platforms")
    system = _PLATFORMS.get(machine.system, machine.system)
    if isinstance(platforms, list) and platforms and system not in platforms:
        listed = ", ".join(map(str, cast("list[Any]", platforms)))
        raise _refused(bundle.path, f"it is for {listed}, and this is {system}")
    name = name or bundle.name
    config = _command(bundle, system)
    filler = _Filler(name, Path(home) / BUNDLES / bundle.folder_name, bundle, values, machine)
    args = [word for arg in config.get("args") or () for word in filler.words(str(arg))]
    env = {
        str(key): text
        for key, value in _object(config.get("env")).items()
        if (text := filler.text(str(value)))
    }
    entry: Entry = {"command": filler.text(str(config["command"])), "args": args}
    if env:
        entry["env"] = env
    values.require_all_used(bundle.name)
    note = f"from {bundle.path.name}, {bundle.name} {manifest.get('version', '')}".rstrip()
    return HostServer(
        name, "", str(bundle.path), entry, (f"{note}; its files go to {filler.folder}",)
    )


def _command(bundle: Bundle, system: str) -> Object:
    """Returns command, args and env for this system, as the manifest says or as its type means."""
    server = _object(bundle.manifest["server"])
    config = _object(server.get("mcp_config"))
    overrides = _object(_object(config.get("platform_overrides")).get(system))
    config = config | overrides
    if isinstance(config.get("command"), str) and config["command"]:
        return config
    entry = f"${{__dirname}}/{server.get('entry_point', '')}"
    usual: dict[str, list[str]] = {
        "node": ["node", entry],
        "python": ["python3", entry],
        "uv": ["uv", "run", "--directory", "${__dirname}", entry],
        "binary": [entry],
    }
    words = usual.get(str(server.get("type")))
    if words is None or not server.get("entry_point"):
        raise _refused(bundle.path, "its manifest does not say how it is started")
    return config | {"command": words[0], "args": words[1:]}


class _Filler:
    """Replaces the variables of a manifest."""

    def __init__(
        self, name: str, folder: Path, bundle: Bundle, values: ValueSource, machine: Machine
    ) -> None:
        self.name = name
        self.folder = folder
        self.options = _object(bundle.manifest.get("user_config"))
        self.values = values
        self.left = MOST_TEXT
        self.fixed = {
            "__dirname": str(folder),
            "HOME": str(machine.home),
            "/": os.sep,
            "pathSeparator": os.sep,
            **{key: str(machine.home / place) for key, place in _FOLDERS.items()},
        }

    def words(self, text: str) -> list[str]:
        """Returns an argument as words: an option of several values is one for each, without any none."""
        match = _PLACE.fullmatch(text)
        if match and match[1].startswith("user_config."):
            return [value for value in self.option(match[1].partition(".")[2]) if value]
        return [self.text(text)]

    def text(self, text: str) -> str:
        return _PLACE.sub(self._instead, text)

    def _instead(self, match: re.Match[str]) -> str:
        name = match[1]
        if name.startswith("user_config."):
            return ",".join(self.option(name.partition(".")[2]))
        return self._fixed(match)

    def _fixed(self, match: re.Match[str]) -> str:
        """Returns what every manifest can refer to; anything else is text of its own."""
        known = self.fixed.get(match[1])
        return f"${match[0]}" if known is None else known.replace("${", "$${")

    def option(self, key: str) -> list[str]:
        """Returns the values of an option: given, secret, default, or asked for."""
        values = self._option(key)
        self.left -= sum(map(len, values))
        if self.left < 0:
            raise InvalidCall(f"'{self.name}' can't be added: its options would fill the entry")
        return values

    def _option(self, key: str) -> list[str]:
        option = _object(self.options.get(key))
        default = option.get("default")
        if key in self.values.given:
            value = self.values.take(key)
            return value.split(",") if option.get("multiple") else [value]
        if option.get("sensitive"):
            variable = derived_variable(self.name, key)
            return [f"${{{variable}}}" if option.get("required") else f"${{{variable}:-}}"]
        if default is not None:
            items = cast("list[Any]", default) if isinstance(default, list) else [default]
            # Without those of other options, each of which could have two more in it.
            return [_PLACE.sub(self._fixed, _plain(item)) for item in items]
        if option.get("required"):
            about = str(option.get("description") or option.get("title") or "")
            return [self.values.ask(key, about).replace("${", "$${")]
        return [""]


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _object(value: Any) -> Object:
    return cast("Object", value) if isinstance(value, dict) else {}
