"""Long results: nothing is lost, nothing is cut in silence, and nobody reads another's."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.core.errors import InvalidCall, NotFound
from mcp_workbench.gateway.result_budget import KeptResults, within_budget
from mcp_workbench.server.own_tools import read_result
from tests.kit.results import raw

ME = object()


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def result(*blocks: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"content": list(blocks), **more}, ensure_ascii=False).encode()


def cut(whole: bytes, budget: int, store: KeptResults) -> dict[str, Any]:
    return json.loads(bytes(within_budget(whole, budget, store, ME)))


def read(store: KeptResults, owner: object = ME, /, **wish: Any) -> list[str]:
    answer = json.loads(asyncio.run(read_result(store, owner, raw(wish))))
    return [block["text"] for block in answer["content"]]


def next_call(notice: str) -> dict[str, Any] | None:
    found = re.search(r"read_result (\{.*\})$", notice)
    return json.loads(found[1]) if found else None


@given(st.lists(st.text(max_size=60), min_size=1, max_size=4), st.integers(1, 60))
def test_head_and_pages_together_are_the_whole_text(texts: list[str], budget: int) -> None:
    store = KeptResults()
    whole = result(*map(text, texts))
    shown = cut(whole, budget, store)

    if shown == json.loads(whole):
        assert sum(map(len, texts)) + len(texts) - 1 <= budget
        return
    *blocks, notice = [block["text"] for block in shown["content"]]
    told = "\n".join(blocks)
    assert len(told) <= budget
    wish = next_call(notice)
    assert wish is not None
    pages: list[str] = []
    offset = wish["offset"]
    while wish:
        page, notice = read(store, **wish)
        pages.append(page)
        wish = next_call(notice)
    assert notice.endswith("; the end")
    assert "\n".join(texts)[:offset] == told
    assert told + "".join(pages) == "\n".join(texts)


@pytest.mark.parametrize(
    "whole",
    [
        result(text("short")),
        result(text("x" * 500), isError=True),
        result({"type": "image", "data": "A" * 500, "mimeType": "image/png"}),
        result({"type": "resource", "resource": {"uri": "a://b", "text": "x" * 500}}),
        b'{"content":"' + b"x" * 500 + b'"}',
        b"[" + b"1," * 300 + b"1]",
    ],
    ids=["short", "an error", "an image", "a resource", "odd content", "no object"],
)
def test_what_is_not_too_much_text_passes_byte_for_byte(whole: bytes) -> None:
    assert within_budget(whole, 100, KeptResults(), ME) == whole


def test_only_text_is_cut_and_the_rest_stays_in_its_place() -> None:
    image = {"type": "image", "data": "A" * 50, "mimeType": "image/png"}
    lines = "".join(f"line {n}\n" for n in range(50))
    whole = result(text("first"), image, text(lines), text("last"), _meta={"n": 1})
    store = KeptResults()

    shown = cut(whole, 100, store)

    first, pictured, head, notice = shown["content"]
    assert (first, pictured) == (text("first"), image)
    assert head["text"].endswith("\n")
    assert lines.startswith(head["text"])
    assert shown["_meta"] == {"n": 1}
    assert notice["text"].startswith("A part of 53 lines. ")
    wish = next_call(notice["text"])
    assert wish is not None
    assert "first\n" + head["text"] + read(store, **wish, length=9999)[0] == f"first\n{lines}\nlast"


def test_structured_content_goes_with_the_text_and_is_kept_once_where_both_say_the_same() -> None:
    rows = [{"id": n, "name": "x"} for n in range(50)]
    store = KeptResults()

    same = cut(result(text(json.dumps(rows)), structuredContent=rows), 100, store)
    other = cut(result(text("50 rows"), structuredContent={"rows": rows}), 100, store)

    assert "structuredContent" not in same
    assert (
        'a JSON list of 50, the first a JSON object with ["id","name"]'
        in same["content"][-1]["text"]
    )
    whole, _ = read(store, handle=next_call(same["content"][-1]["text"])["handle"], length=9999)  # type: ignore[index]
    assert json.loads(whole) == rows
    assert other["content"][0] == text("50 rows")
    wish = next_call(other["content"][-1]["text"])
    assert wish is not None
    assert json.loads(read(store, **wish, length=9999)[0]) == {"rows": rows}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({f"k{n}": "x" * 50 for n in range(12)}, '"k10","k11"].'),
        ({f"k{n}": "x" * 50 for n in range(13)}, '"k10","k11"] (+1).'),
        ({"k" * 41: "x" * 200}, f'a JSON object with ["{"k" * 40}"].'),
        ([list[object](), "x" * 200], "a JSON list of 2, the first a JSON list of 0."),
        ([1, "x" * 200], "a JSON list of 2, the first a JSON value."),
    ],
)
def test_the_whole_is_described_in_a_few_words(value: object, words: str) -> None:
    shown = cut(result(text(json.dumps(value))), 100, KeptResults())

    assert words in shown["content"][-1]["text"]


def test_a_text_is_found_with_what_stands_before_it() -> None:
    store = KeptResults()
    handle = store.keep(ME, "a" * 1000 + "needle" + "b" * 1000, 100)

    page, notice = read(store, handle=handle, find="needle", length=300)
    missing = read(store, handle=handle, find="no such")
    later = read(store, handle=handle, find="needle", offset=1001)

    assert page == "a" * 200 + "needle" + "b" * 94
    assert notice.startswith("characters 800 to 1100 of 2006; 906 more characters: ")
    assert missing == ["'no such' is not in this result after character 0"]
    assert later == ["'needle' is not in this result after character 1001"]


def test_unknown_expired_and_foreign_handles_are_told_alike() -> None:
    store = KeptResults(lifetime=0.0)
    living = KeptResults()
    said: set[str] = set()
    for where, handle, owner in (
        (store, store.keep(ME, "x", 1), ME),
        (living, living.keep(ME, "x", 1), object()),
        (living, "guessed", ME),
    ):
        with pytest.raises(NotFound) as caught:
            read(where, owner, handle=handle)
        said.add(f"{caught.value.message.replace(handle, 'H')} {caught.value.hint}")

    assert len(said) == 1


def test_all_that_is_kept_is_bounded_and_the_oldest_goes_first() -> None:
    store = KeptResults(most=100)
    first, second = store.keep(ME, "a" * 60, 10), store.keep(ME, "ä" * 30, 10)

    assert store.keep(ME, "x" * 101, 10) == ""
    assert within_budget(result(text("x" * 101)), 10, store, ME) == result(text("x" * 101))
    assert read(store, handle=second, length=99)[0] == "ä" * 30
    with pytest.raises(NotFound):
        read(store, handle=first)


@pytest.mark.parametrize(
    ("wish", "told"),
    [
        ({}, "handle: Required"),
        ({"handle": ""}, "handle: Handle name cannot be empty"),
        ({"handle": "x", "offset": -1}, "offset: must be a whole number from 0 up"),
        ({"handle": "x", "offset": "1"}, "offset: Expected number, received string"),
        ({"handle": "x", "length": 0}, "length: must be a whole number from 1 up"),
        ({"handle": "x", "length": 1.5}, "length: must be a whole number from 1 up"),
        ({"handle": "x", "find": 5}, "find: Expected string, received number"),
        ([], "Expected object, received array"),
    ],
)
def test_every_problem_of_a_wrong_reading_is_told(wish: Any, told: str) -> None:
    with pytest.raises(InvalidCall) as caught:
        asyncio.run(read_result(KeptResults(), ME, raw(wish)))

    assert caught.value.message == f"Invalid parameters: {told}"
