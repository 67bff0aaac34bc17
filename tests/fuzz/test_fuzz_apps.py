"""Pages of apps and entries of skills: changed where they have to be, and nowhere else."""

# What is made up has no types.
# pyright: basic

from __future__ import annotations

import json
from html.parser import HTMLParser

from hypothesis import strategies as st

from mcp_workbench.core.app_pages import inserted, with_script
from mcp_workbench.core.skills import addressed_skill, read_skill, read_skill_address, skill_address
from mcp_workbench.core.spec import ServerAddress
from tests.fuzz.effort import fuzzed, size
from tests.fuzz.material import mutated

OWNER = ServerAddress("dev", "one")
SCRIPT = "<script>ours</script>"
PIECES = [
    "<!doctype html>",
    "<html>",
    '<html a=">">',
    "<head>",
    "<head a='<'>",
    "</head>",
    "<!--",
    "-->",
]
PIECES += [
    "<body>",
    "<header>",
    "<title>x</title>",
    "<script>theirs</script>",
    " ",
    "\n",
    "a",
    "\ufeff",
    "<",
    "'",
]
pages = st.lists(st.sampled_from(PIECES), max_size=size(12)).map("".join) | st.text(
    max_size=size(20)
)
SKILL = (
    b'{"uri":"skill://a/SKILL.md","frontmatter":{"name":"a"},"resources":[{"uri":"skill://a/b"}]}'
)
RESULT = b'{"contents":[{"uri":"ui://a","mimeType":"text/html","text":"<p>"}]}'


class Tags(HTMLParser):
    """The elements of a page as another parser reads them."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.started.append(tag)


def tags(page: str) -> list[str]:
    parser = Tags()
    parser.feed(page)
    return parser.started


@fuzzed(pages)
def test_a_page_has_the_script_before_its_content_and_nothing_else_changes(page: str) -> None:
    changed = inserted(page, SCRIPT)

    assert changed.replace(SCRIPT, "", 1) == page
    before = tags(changed[: changed.index(SCRIPT)])
    assert set(before) <= {"html", "head"}
    assert len(before) == len(set(before))


@fuzzed(mutated(st.just(RESULT)))
def test_any_result_is_still_one_that_can_be_read(result: bytes) -> None:
    result = result.decode("utf-8", "replace").encode()  # as it is received
    changed = bytes(with_script(result, SCRIPT))

    if changed != result:
        assert json.loads(changed).keys() == json.loads(result).keys()


@fuzzed(mutated(st.just(SKILL)))
def test_any_entry_keeps_all_but_its_addresses(entry: bytes) -> None:
    entry = entry.decode("utf-8", "replace").encode()
    try:
        whole = json.loads(entry)
        json.dumps(whole).encode()
        changed = json.loads(addressed_skill(entry, OWNER))
    except (ValueError, RecursionError):
        return
    for one in (whole, changed):
        one.pop("uri", None)
        one.pop("resources", None)
    assert changed == whole
    read_skill(entry)


@fuzzed(st.text(st.sampled_from("skil:/a.é"), max_size=size(12)).map("skill://".__add__))
def test_every_address_of_a_skill_leads_back(uri: str) -> None:
    assert read_skill_address(skill_address(OWNER, uri)) == (
        (OWNER, uri) if uri != "skill://" else None
    )
