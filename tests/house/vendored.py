"""Renews the web libraries in `ui/static/vendor` from npm: `make vendor`.

Each archive is checked against the digest below, its modules are joined into one file per purpose (a page that loads
fewer files starts sooner), and THIRD_PARTY.md gets names, versions, licences and the digests of what was written.
Nothing is compiled, and nothing of this is needed to install or run the program.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "src/mcp_workbench/ui/static/vendor"
NOTICE = ROOT / "THIRD_PARTY.md"


class Library(NamedTuple):
    """A package in an exact version, and the digest of its archive as the registry publishes it."""

    name: str
    version: str
    sha512: str
    licence: str
    licence_file: str = "LICENSE"


PREACT = Library(
    "preact",
    "11.2.0",
    "/HfHI/7N84e6GrWBJ3J280z3mLaRJiDcSvj/A+y/4AbLnND/1UlGHe1sR6oYuTGwId0nP7dqDU9OnLxMPZ7xBg==",
    "MIT",
)
SIGNALS_CORE = Library(
    "@preact/signals-core",
    "1.14.5",
    "vcRv7Ityz5JVmeiVqIluLFzT/PDS/AlhHUpw3/aUWqcVUs6bDGIPXE/6RSC4evBNWYvnniozg5Syfj33al3gkg==",
    "MIT",
)
SIGNALS = Library(
    "@preact/signals",
    "2.11.4",
    "Rb+5RPo9gWSaHtzJeauhHxiC8KP/IF2DEPkHPEOGOnuy2wnJzRqyeLRankUCYd6ADqtxS6GnWGv6Ie343d8aYw==",
    "MIT",
)
HTM = Library(
    "htm",
    "3.1.1",
    "983Vyg8NwUE7JkZ6NmOqpCZ+sh1bKv2iYTlUkzlWmA5JD2acKoxd4KVxbMmxX/85mtfdnDmTFoNKcg5DGAvxNQ==",
    "Apache-2.0",
)
UPLOT = Library(
    "uplot",
    "1.6.32",
    "KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw==",
    "MIT",
)
# In the order in which they need each other: how modules name them, and where they are in the archive.
VIEW = (
    ("preact", PREACT, "dist/preact.mjs"),
    ("preact/hooks", PREACT, "hooks/dist/hooks.mjs"),
    ("@preact/signals-core", SIGNALS_CORE, "dist/signals-core.mjs"),
    ("@preact/signals", SIGNALS, "dist/signals.mjs"),
    ("htm", HTM, "dist/htm.mjs"),
)
EXPORTED = (
    "export const {h,render,Fragment,Component}=m0;\n"
    "export const {useEffect,useRef,useState,useMemo,useLayoutEffect}=m1;\n"
    "export const {signal,computed,effect,batch,useSignal,useComputed,useSignalEffect}=m3;\n"
    "export const html=m4.default.bind(m0.h);\n"
)

_IMPORT = re.compile(r'import\s*\{([^}]*)\}\s*from\s*"([^"]+)";?')
_PASSED_ON = re.compile(r'export\s*\{([^}]*)\}\s*from\s*"([^"]+)";?')
_EXPORT = re.compile(r"export\s*\{([^}]*)\};?")
_DEFAULT = re.compile(r"export\s+default\s+")
_MAP = re.compile(r"//# sourceMappingURL=\S+")


def archive(library: Library) -> dict[str, bytes]:
    """The files of a package; it must be the archive that was reviewed."""
    with tempfile.TemporaryDirectory() as folder:
        packed = ["npm", "pack", "--silent", f"{library.name}@{library.version}"]
        subprocess.run(packed, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        data = next(Path(folder).glob("*.tgz")).read_bytes()
    digest = base64.b64encode(hashlib.sha512(data).digest()).decode()
    if digest != library.sha512:
        raise SystemExit(f"{library.name} {library.version} is not the archive that was reviewed")
    with tarfile.open(fileobj=io.BytesIO(data)) as files:
        return {
            member.name.partition("/")[2]: read.read()
            for member in files.getmembers()
            if (read := files.extractfile(member)) is not None
        }


def joined(sources: list[tuple[str, str]]) -> str:
    """One module of several: each becomes a function that returns what it exports."""
    number = {name: f"m{index}" for index, (name, _) in enumerate(sources)}
    parts: list[str] = []
    for name, source in sources:
        text = _MAP.sub("", source).strip()
        passed_on: list[str] = []
        for names, origin in _PASSED_ON.findall(text):
            passed_on += [f"{new}:{number[origin]}.{old}" for old, new in _pairs(names)]
        text = _PASSED_ON.sub("", text)
        text = _IMPORT.sub(
            lambda found: (
                f"const{{{','.join(f'{old}:{new}' for old, new in _pairs(found[1]))}}}={number[found[2]]};"
            ),
            text,
        )
        exported = [f"{new}:{old}" for names in _EXPORT.findall(text) for old, new in _pairs(names)]
        text = _EXPORT.sub("", text)
        if _DEFAULT.search(text):
            text = _DEFAULT.sub("const standard=", text)
            exported.append("default:standard")
        if re.search(r"(^|[;}])(import|export)\b", text):
            raise SystemExit(f"{name} has an import or export of a kind that is not known here")
        result = ",".join(exported + passed_on)
        parts.append(f"const {number[name]}=(()=>{{{text}\nreturn{{{result}}}}})();\n")
    return "".join(parts)


def _pairs(names: str) -> list[tuple[str, str]]:
    """The old and the new name of each part of an import or export."""
    pairs: list[tuple[str, str]] = []
    for part in filter(None, (part.strip() for part in names.split(","))):
        old, _, new = part.partition(" as ")
        pairs.append((old.strip(), (new or old).strip()))
    return pairs


def renew() -> None:
    libraries = (PREACT, SIGNALS_CORE, SIGNALS, HTM, UPLOT)
    files = {library.name: archive(library) for library in libraries}
    sources = [(name, files[library.name][path].decode()) for name, library, path in VIEW]
    plot = files["uplot"]["dist/uPlot.iife.min.js"].decode().strip()
    written = {
        "view.js": joined(sources) + EXPORTED,
        "uplot.js": f"{plot}\nexport default uPlot;\n",
        "uplot.css": files["uplot"]["dist/uPlot.min.css"].decode().strip() + "\n",
    }
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in written.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    licences = {library.name: files[library.name][library.licence_file] for library in libraries}
    NOTICE.write_text(notice(libraries, licences, written), encoding="utf-8")


def notice(
    libraries: tuple[Library, ...], licences: dict[str, bytes], written: dict[str, str]
) -> str:
    """The text of THIRD_PARTY.md."""
    lines = [
        "# Third-party software",
        "",
        "The web page contains these libraries, unchanged but for being joined into fewer files. `make vendor` writes",
        "the files and this page, after it has checked each archive against its digest (`tests/house/vendored.py`).",
        "",
        "| library | version | licence | SHA-512 of the archive on npm |",
        "|---|---|---|---|",
        *(f"| {one.name} | {one.version} | {one.licence} | `{one.sha512}` |" for one in libraries),
        "",
        "| file in `src/mcp_workbench/ui/static/vendor` | SHA-256 |",
        "|---|---|",
        *(
            f"| {name} | `{hashlib.sha256(text.encode()).hexdigest()}` |"
            for name, text in written.items()
        ),
        "",
    ]
    for one in libraries:
        text = licences[one.name].decode().strip()
        lines += [f"## {one.name}", "", "```text", text, "```", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    renew()
    sys.stdout.write(f"{FOLDER} and {NOTICE.name} are renewed\n")
