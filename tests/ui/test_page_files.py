"""What the page consists of: the libraries are those that were reviewed, and nothing turns text into markup."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path

import pytest

from tests.house.vendored import (
    FOLDER,
    HTM,
    NOTICE,
    PREACT,
    SIGNALS,
    SIGNALS_CORE,
    UPLOT,
    Library,
    joined,
)

STATIC = FOLDER.parent
OWN = sorted(file for file in STATIC.iterdir() if file.suffix == ".js")


def test_the_libraries_are_those_of_the_notice() -> None:
    text = NOTICE.read_text("utf-8")
    recorded = dict(re.findall(r"^\| ([\w.-]+) \| `([0-9a-f]{64})` \|$", text, re.M))

    assert recorded == {
        file.name: sha256(file.read_bytes()).hexdigest() for file in FOLDER.iterdir()
    }


@pytest.mark.parametrize("library", [PREACT, SIGNALS, SIGNALS_CORE, HTM, UPLOT])
def test_each_library_has_its_version_and_licence_in_the_notice(library: Library) -> None:
    name, version, digest, licence, _ = library
    text = NOTICE.read_text("utf-8")

    assert f"| {name} | {version} | {licence} | `{digest}` |" in text
    assert f"## {name}\n" in text


@pytest.mark.parametrize("file", OWN, ids=lambda file: file.name)
def test_our_scripts_have_no_way_to_make_markup_or_code_of_text(file: Path) -> None:
    source = file.read_text("utf-8")
    banned = r"innerHTML|outerHTML|insertAdjacentHTML|dangerouslySet|document\.write|\beval\(|new Function|srcdoc|DOMParser|https?://"

    assert re.findall(banned, source) == []


def test_the_images_of_the_documents_are_those_that_browser_tests_make() -> None:
    root = Path(__file__).parents[2]
    tests = "".join(file.read_text("utf-8") for file in Path(__file__).parent.glob("test_*.py"))
    made = set(re.findall(r'show\(page, "(ui-[a-z-]+)"', tests))
    kept = {file.stem for file in (root / "docs/images").iterdir()}
    readme, page = (
        set(re.findall(r"images/(ui-[a-z-]+)\.png", (root / name).read_text("utf-8")))
        for name in ("README.md", "docs/ui.md")
    )

    assert made == kept == readme == page


def test_modules_are_joined_with_their_names() -> None:
    sources = [
        ("a", "var x=1,y=2;export{x as one,y as two};\n//# sourceMappingURL=a.map"),
        ("b", 'import{one as n}from"a";export{two}from"a";export default function(s){return n+s}'),
    ]

    text = joined(sources)

    assert "const m0=(()=>{var x=1,y=2;" in text
    assert "return{one:x,two:y}" in text
    assert "const{one:n}=m0;" in text
    assert "return{default:standard,two:m0.two}" in text
    assert "sourceMappingURL" not in text
    with pytest.raises(SystemExit):
        joined([("c", 'import * as all from"a";')])
