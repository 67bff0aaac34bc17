"""Ranking: the same tools always rank the same, and no short cut changes what is found."""

from __future__ import annotations

import json
import random
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_workbench.core.catalogue import Catalogue, Definition
from mcp_workbench.core.spec import (
    ServerAddress,
    ServerSpec,
    StdioCommand,
    ToolboxSpec,
    ToolFilter,
    ToolIdentifier,
)
from mcp_workbench.search.close_words import CloseWords, is_close
from mcp_workbench.search.index import Index, Search, Term, best_scores, scores_of
from mcp_workbench.search.queries import (
    Query,
    SearchableServer,
    SearchResult,
    SearchScope,
    ServerDescription,
    Words,
    parts,
)

WORDS = ("file", "search", "read", "write", "commit", "weather", "city", "user", "list", "image")


def tool(name: str, description: str = "", **properties: Any) -> Definition:
    schema = {"type": "object", "properties": properties}
    raw = {"name": name, "description": description, "inputSchema": schema}
    return Definition(name, json.dumps(raw).encode())


def known(address: str, *tools: Definition, text: str = "", shown: str = "*") -> SearchableServer:
    toolbox, server = address.split("/")
    spec = ServerSpec(ServerAddress(toolbox, server), StdioCommand("x"), ToolFilter((shown,)))
    return SearchableServer(
        spec, ToolboxSpec(toolbox), Catalogue({t.name: t for t in tools}), text=text
    )


def searched(query: Query | str, *servers: SearchableServer) -> SearchResult:
    words = Words()
    index = Index(words)
    for one in servers:
        index.put(one.spec.address, one.visible(), one.about, one.fingerprint)
    wanted = Query(query) if isinstance(query, str) else query
    scoped = bool(wanted.toolbox or wanted.server)
    knowledge = SearchScope({one.spec.address: one for one in servers}, ())
    return Search(index, knowledge, words, wanted.covers if scoped else None).find(wanted)


def names(found: SearchResult) -> list[str]:
    return [str(one.tool) for one in found.tools]


# Words


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("getUserByID2", ["get", "user", "by", "id", "2"]),
        ("HTTPServer", ["http", "server"]),
        ("read_text-file.v2/x", ["read", "text", "file", "v", "2", "x"]),
        ("Größe ändern", ["größe", "ändern"]),
        ("搜索文件 abc", ["搜索", "索文", "文件", "abc"]),
        ("票", ["票"]),
        ("Gro\u0308ße", ["größe"]),  # spelt with a mark of its own
        ("\uff26\uff29\uff2c\uff25", ["file"]),
        ("फ़ाइल पढ़ें", ["फ़ाइल", "पढ़ें"]),
        ("เปิดไฟล์", ["เป", "ปิ", "ิด", "ดไ", "ไฟ", "ฟล", "ล์"]),
        ("שָׁלוֹם", ["שָׁלוֹם"]),
        ("", []),
    ],
)
def test_a_text_is_split_into_words(text: str, found: list[str]) -> None:
    assert list(parts(text)) == found


def test_forms_of_a_word_are_one_word_and_common_ones_none() -> None:
    words = Words()

    assert words.of("Searching the searches, please") == words.of("search") * 2
    assert words.asked("Repositories of you").spelled == {words.of("repository")[0]: "repositories"}


# The order


FILES = known(
    "dev/files",
    tool("read_file", "Reads a text file.", path={"type": "string", "description": "Where it is"}),
    tool("write_file", "Writes a file, and overwrites it if it is there."),
    tool("list_directory", "Lists what is in a folder."),
)
WEATHER = known(
    "home/weather",
    tool("forecast", "Tells the weather of the next days.", city={"enum": ["Paris", "Rome"]}),
    tool("search", "Looks for a place."),
)


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("read files", "dev/files/read_file"),
        ("what is in this folder", "dev/files/list_directory"),
        ("weather in Rome", "home/weather/forecast"),
        ("search", "home/weather/search"),
        ("SEARCH", "home/weather/search"),
        ("weather/search", "home/weather/search"),
        ("home__weather__search", "home/weather/search"),
    ],
)
def test_the_best_tool_comes_first(query: str, best: str) -> None:
    assert names(searched(query, FILES, WEATHER))[0] == best


@pytest.mark.parametrize(("short", "long"), [(2, 6), (1, 3), (5, 5)])
def test_a_word_counts_for_less_in_a_longer_text(short: int, long: int) -> None:
    def weight(length: int) -> float:
        """That of a word that occurs once in a description, after BM25 with k1 = 1.6 and b = 0.6."""
        value = 1 / (0.4 + 0.6 * length / ((short + long) / 2))
        return value / (1.6 + value)

    index = Index(Words())
    lengths = {"first": short, "second": long}
    texts = {name: "weather" + " city" * (count - 1) for name, count in lengths.items()}
    tools = [tool(name, text) for name, text in texts.items()]
    index.put(ServerAddress("t", "s"), tools, ServerDescription("s"))

    first, second = (hit.score for hit in index.search("weather"))

    # Means are rounded to steps of two per cent.
    assert first / second == pytest.approx(weight(short) / weight(long), rel=0.01)


def test_a_name_that_only_occurs_in_the_query_does_not_win() -> None:
    assert names(searched("search the weather forecast", FILES, WEATHER))[0].endswith("forecast")


def test_whole_names_give_exactly_those_tools() -> None:
    found = searched("home/weather/forecast, dev/files/read_file", FILES, WEATHER)

    assert names(found) == ["home/weather/forecast", "dev/files/read_file"]
    assert found.siblings == ()
    assert names(searched("home/weather/forecast dev/files/no", FILES, WEATHER)) != []


def test_the_names_beside_the_hits_are_those_of_the_best_servers() -> None:
    found = searched(Query("read a file", limit=1), FILES, WEATHER)

    [beside] = found.siblings
    assert (str(beside.address), beside.names) == ("dev/files", ("write_file", "list_directory"))


def test_a_scope_is_all_that_is_looked_at_however_much_better_the_rest_fits() -> None:
    crowd = [known(f"crowd/s{n}", tool("forecast", "weather weather forecast")) for n in range(150)]
    found = searched(Query("weather forecast", toolbox="home"), FILES, WEATHER, *crowd)

    assert names(found) == ["home/weather/forecast", "home/weather/search"]
    assert found.total == 2
    assert {one.address.toolbox for one in found.siblings} <= {"home"}
    assert names(searched(Query("file", server="files"), FILES, WEATHER)) != []


def test_nothing_fits_is_an_answer_and_strange_words_are_named() -> None:
    nothing = searched("zebra crossing", FILES, WEATHER)
    some = searched("zebra weather", FILES, WEATHER)

    assert (nothing.tools, nothing.strange, nothing.total) == ((), ("zebra", "crossing"), 5)
    assert some.strange == ("zebra",)
    assert some.tools != ()


@pytest.mark.parametrize(
    ("query", "best", "close"),
    [
        ("wether of the next dayz", "home/weather/forecast", {"wether": ("weather",), "dayz": ("days",)}),
        ("overwritse", "dev/files/write_file", {"overwritse": ("overwrites",)}),
        ("raeds", "dev/files/read_file", {"raeds": ("reads",)}),
        ("folders drectory", "dev/files/list_directory", {"drectory": ("directory",)}),
    ],
    ids=lambda value: str(value)[:12],
)  # fmt: skip
def test_a_misspelt_word_is_searched_for_by_close_ones(
    query: str, best: str, close: dict[str, tuple[str, ...]]
) -> None:
    found = searched(query, FILES, WEATHER)

    assert names(found)[0] == best
    assert found.close == close
    assert found.strange == tuple(close)


def test_only_a_word_that_matches_nothing_is_replaced() -> None:
    right = searched("read a text", FILES, WEATHER)
    both = searched("place", FILES, WEATHER, known("dev/shop", tool("plate", "Sells plates.")))

    assert right.close == both.close == {}
    assert names(both) == ["home/weather/search"]
    for other in ("ead", "eads", "qeads", "rea", "12345", "zebra", "radsz"):
        assert searched(other, FILES, WEATHER).close == {}


def test_a_hidden_word_is_close_to_nothing() -> None:
    secret = tool("secret_plan", "Plans zebras.")
    hiding = known("dev/files", *FILES.visible(), secret, shown="*_[fd]*")

    assert searched("zebars", hiding).close == {}
    index = Index(Words())
    put(index, "a", [["zebras"]])
    assert index.search("zebars") != []
    put(index, "a", [["city"]])
    assert index.search("zebars") == []


LETTERS = st.text("abcd", min_size=4, max_size=9)


@given(LETTERS, st.lists(LETTERS, max_size=30), st.integers(0, 8), st.sampled_from("abcdx"))
def test_close_words_are_all_that_one_letter_makes_the_same(
    word: str, others: list[str], at: int, letter: str
) -> None:
    at = 1 + at % (len(word) - 1)
    edits = {
        word[:at] + word[at + 1 :],
        word[:at] + letter + word[at:],
        word[:at] + letter + word[at + 1 :],
        word[:at] + word[at : at + 2][::-1] + word[at + 2 :],
    }
    close = CloseWords({*others, *edits}).of(word)

    # Of four letters, the two in the middle may have changed places: then nothing else tells them.
    assert {edit for edit in edits if len(word) > 4 or edit[:2] == word[:2]} <= close
    assert all(is_close(word, other) and is_close(other, word) for other in close)
    assert all(abs(len(other) - len(word)) <= 1 for other in close)


GERMAN = known(
    "dev/dateien", tool("lesen", "Liest eine Datei aus dem Ordner."), tool("x", "Und das Wetter.")
)
CHINESE = known("dev/files", tool("bing", "使用必应搜索指定的关键词并返回搜索结果列表"))


@pytest.mark.parametrize(
    "query", ["читать файл", "ファイルを読む", "ouvrir fichier", "dateien öffnen"]
)
def test_a_query_of_another_language_that_matches_nothing_says_so(query: str) -> None:
    found = searched(query, FILES, WEATHER)

    assert (found.tools, found.in_english) == ((), True)
    assert found.strange != ()
    for other in (GERMAN, CHINESE):
        assert not searched("zebra", other).in_english
    assert not searched("read", FILES).in_english  # nobody has to be told


def test_a_word_repeated_in_a_long_query_does_not_hide_the_others() -> None:
    many = [known(f"dev/s{n}", tool(f"library_{n}", "Keeps a library.")) for n in range(5)]
    servers = (
        *many,
        *(known(f"x/t{n}", tool(f"t{n}", "Does this.")) for n in range(20)),
        FILES,
        WEATHER,
    )
    short = "library weather library"
    things = (
        "library, alpha beta gamma delta epsilon zeta eta theta iota kappa lambda library weather"
    )

    assert "library" in names(searched(Query(short, limit=1), *servers))[0]
    assert names(searched(Query(things, limit=1), *servers)) == ["home/weather/forecast"]


def test_a_hidden_tool_changes_nothing_not_even_an_order() -> None:
    secret = [tool(f"secret_{n}", "weather forecast of the file folder") for n in range(9)]
    hiding = known("dev/files", *FILES.visible(), *secret, shown="*_[fd]*")
    query = "weather of a file in a folder"

    assert [tool.name for tool in hiding.visible()] == [tool.name for tool in FILES.visible()]
    assert searched(query, hiding, WEATHER) == searched(query, FILES, WEATHER)


def test_one_server_in_several_toolboxes_is_one_hit_that_names_them_all() -> None:
    twin = known("ops/files", *FILES.visible())

    found = searched("read file", FILES, twin)

    assert names(found).count("dev/files/read_file") == 1
    assert "ops/files/read_file" not in names(found)
    assert found.tools[0].twins == (ServerAddress("ops", "files"),)
    assert len({one.address.server for one in found.siblings}) == len(found.siblings)


# Upkeep


servers = st.dictionaries(
    st.sampled_from(["a", "b", "c", "d"]),
    st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=6), max_size=4),
    max_size=4,
)


def put(index: Index, name: str, tools: list[list[str]], *, weigh: bool = True) -> None:
    made = [tool("_".join(words[:2]) + str(n), " ".join(words)) for n, words in enumerate(tools)]
    index.put(
        ServerAddress("t", name), made, ServerDescription(name, text="city list"), weigh=weigh
    )


@given(st.lists(servers, min_size=1, max_size=4), st.lists(st.sampled_from(WORDS), min_size=1))
def test_changed_server_by_server_or_built_at_once_is_the_same_index(
    history: list[dict[str, list[list[str]]]], query: list[str]
) -> None:
    words = Words()
    changed = Index(words)
    for state in history:
        for address in [a for a in changed.servers if a.server not in state]:
            changed.remove(address)
        for name, tools in state.items():
            put(changed, name, tools)
        changed.search("file search")  # weights that were asked for must not grow old
    built = Index(words)
    for name, tools in history[-1].items():
        put(built, name, tools, weigh=False)
    built.fill()

    text = " ".join(query)
    assert changed.search(text) == built.search(text)
    assert len(changed) == len(built)


@given(st.integers(0, 2**32), st.integers(1, 20), st.booleans())
def test_leaving_out_what_can_not_be_among_the_best_changes_nothing(
    seed: int, most: int, even: bool
) -> None:
    rng = random.Random(seed)
    weight = partial(rng.choice, (0.25, 0.5, 0.75)) if even else rng.random  # even: many are equal
    tools = range(rng.choice((300, 1000)))
    terms: list[Term] = []
    for _ in range(rng.randint(1, 9)):
        factor = rng.choice((1.0, 2.0, 4.0)) if even else rng.uniform(0.01, 6)
        weights = {n: weight() for n in rng.sample(tools, rng.randint(1, 300))}
        # What a word can add is a bound, which may be larger than it had to be.
        terms.append((factor, weights, factor * max(weights.values()) * rng.choice((1, 1, 1.3))))
    terms.sort(key=lambda term: -term[0])
    for _, weights, _ in terms[rng.randrange(len(terms)) :]:
        weights[len(tools)] = max(weights.values())  # a tool that makes up for a late start
    whole: dict[int, float] = {}
    for factor, weights, _ in terms:
        for number, value in weights.items():
            whole[number] = whole.get(number, 0.0) + factor * value
    ranked = sorted(whole.values(), reverse=True)
    last = ranked[min(most, len(ranked)) - 1]

    assert best_scores(terms, most) == {n: score for n, score in whole.items() if score >= last}
    some = rng.sample(tools, 90)
    among = {n: whole[n] for n in some if n in whole}
    assert scores_of(some, terms, 300) == among


@pytest.mark.cost
def test_thousands_of_tools_are_built_and_searched_in_bounded_time() -> None:
    """Generous bounds: a slow machine passes, an algorithm that got slow does not."""
    import time

    rng = random.Random(7)
    many = [f"{a}{b}" for a in WORDS for b in WORDS]
    index, words = Index(Words()), [rng.choices(many, k=30) for _ in range(3000)]
    since = time.process_time()
    for n in range(300):
        tools = [tool(f"{w[0]}_{w[1]}_{i}", " ".join(w)) for i, w in enumerate(words[n * 10 : n * 10 + 10])]  # fmt: skip
        index.put(ServerAddress("t", f"s{n}"), tools, ServerDescription(f"s{n}"), weigh=False)
    index.fill()
    assert time.process_time() - since < 10
    since = time.process_time()
    for _ in range(20):
        assert index.search(" ".join(rng.choices(many, k=8)))
    assert (time.process_time() - since) / 20 < 0.1
    assert len(index) == 3000


def test_the_answer_names_a_tool_that_can_be_called() -> None:
    found = searched("read file", FILES)

    assert found.tools[0].tool == ToolIdentifier("dev", "files", "read_file")
    assert found.tools[0].definition is FILES.catalogue.tools["read_file"]
