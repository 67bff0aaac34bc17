"""BM25F index of tools, kept up to date server by server, and the search in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import log

import msgspec

from mcp_workbench.core.catalogue import Definition
from mcp_workbench.core.spec import (
    ServerAddress,
    ToolIdentifier,
    generate_tool_name,
    parse_tool_name,
)
from mcp_workbench.search.close_words import CloseWords
from mcp_workbench.search.queries import (
    FOREIGN_WORDS,
    MOST_NAMED,
    WEIGHTS,
    Counts,
    FieldCounts,
    FoundTool,
    Places,
    Query,
    QueryWords,
    SearchResult,
    SearchScope,
    ServerDescription,
    Siblings,
    Unread,
    Words,
    server_counts,
    tool_counts,
)

DEEP = 100  # hits from which the best servers are determined
BEST_SERVERS = 3
BEST_TOOLS = 3  # of a server, whose scores are summed for the server's own
SHORT = 8  # words; of a longer query, a low score says nothing
WEAK = 0.15  # of the best possible score
NAMED = 1.0  # the score of a tool that the query names

K1 = 1.6
B = 0.6
# A word repeated in a short query counts twice: it is what the query is about. In a long one, which
# asks for several things, it would hide the others.
BRIEF = 12  # words
CLOSE = 0.8  # the factor of a word that is searched for instead of a misspelt one
MOST_CLOSE = 3  # words instead of a misspelt one
MOST_CORRECTED = 16  # words of a query
ENGLISH = 0.8  # of all words, those in Latin letters without accents
FOREIGN = 0.1  # of all tools, those with a common word of another language
# Mean lengths change in steps of 2 %, so that most changes of one server leave the weights of all
# others valid, and the same tools always rank the same, whatever was indexed before.
STEP = log(1.02)
MOST_COUNTED = 30_000  # tools whose counts are cached

Shows = Callable[[ServerAddress], bool]  # whether its tools are searched
Fingerprint = tuple[object, ...]
Weights = dict[int, float]  # of a word, in each tool that has it
Scores = dict[int, float]
Term = tuple[float, Weights, float]  # the factor of a word, its weights, the most it can add

WORTH = 0.5  # of all that the words can add; while more is left, no tool can be ruled out
FEW = 200  # weights; to read them all is less work than to skip some
SLACK = 1 + 1e-9  # sums in another order differ in their last digits


class Hit(msgspec.Struct, frozen=True):
    """A tool with its score for a query."""

    tool: ToolIdentifier
    score: float


class Search:
    """Runs queries over an index and its scope."""

    def __init__(self, index: Index, scope: SearchScope, words: Words, shows: Shows | None) -> None:
        self._index = index
        self._known = scope.known
        self._unknown = scope.unknown
        self._words = words
        self._shows = shows

    def find(self, query: Query) -> SearchResult:
        total = self._index.count(self._shows)
        unknown = tuple(Unread(s.address) for s in self._unknown if query.covers(s.address))
        if names := self._listed(query.words):
            tools = tuple(self._tool(Hit(tool, NAMED)) for tool in names[:MOST_NAMED])
            left_out = tuple(names[MOST_NAMED:])
            return SearchResult(tools, total, unknown=unknown, named=True, left_out=left_out)
        index = self._index
        asked = index.with_close_words(self._words.asked(query.words))
        hits = index.ranked(asked, self._shows, DEEP)
        strange = tuple(word for stem, word in asked.spelled.items() if not index.holds(stem))
        best = hits[0].score if hits else NAMED  # a named tool ranks first
        exact = [Hit(tool, best) for tool in index.named(query.words, self._shows)]
        first = {hit.tool for hit in exact}
        ranked = [*exact, *(hit for hit in hits if hit.tool not in first)]
        shown = self._distinct(ranked, query.limit)
        weak = bool(hits) and not exact and len(asked.times) <= SHORT
        weak = weak and hits[0].score < WEAK * index.most_possible(asked)
        siblings = self._siblings(hits or exact, {match.tool for match in shown})
        wordless = not asked.times
        return SearchResult(
            tuple(shown),
            total,
            siblings,
            strange,
            {asked.spelled[stem]: words for stem, words in asked.close.items()},
            unknown,
            weak,
            wordless=wordless,
            in_english=not shown and index.is_in_english(),
        )

    def _listed(self, words: str) -> list[ToolIdentifier]:
        """Return the tools of a query that consists of their full names only."""
        parts = [part for part in re.split(r"[,\s]+", words) if part]
        whole = self._index.named(words, self._shows) if "/" in words else []
        if whole or not parts or not all("/" in part for part in parts):
            return whole
        named = [self._index.named(part, self._shows) for part in parts]
        return list(dict.fromkeys(tool for tools in named for tool in tools)) if all(named) else []

    def _tool(self, hit: Hit) -> FoundTool:
        tools = self._known[hit.tool.address].catalogue.tools
        return FoundTool(hit.tool, tools[hit.tool.tool], hit.score)

    def _distinct(self, hits: Iterable[Hit], most: int) -> list[FoundTool]:
        """Merge the hits of a server that is in several toolboxes into one that names them all."""
        matches: dict[tuple[str, Definition], FoundTool] = {}
        names: set[tuple[str, str]] = set()  # beyond the most, only twins of these matter
        for hit in hits:
            name = (hit.tool.server, hit.tool.tool)
            if len(matches) >= most and name not in names:
                continue
            match = self._tool(hit)
            key = (hit.tool.server, match.definition)
            if key in matches:
                twins = (*matches[key].twins, hit.tool.address)
                matches[key] = msgspec.structs.replace(matches[key], twins=twins)
            elif len(matches) < most:
                matches[key] = match
                names.add(name)
        return list(matches.values())

    def _siblings(self, hits: list[Hit], shown: set[ToolIdentifier]) -> tuple[Siblings, ...]:
        """Return the other tools of the best servers, ranked by the sum of their best tools' scores."""
        scores: dict[ServerAddress, list[float]] = {}
        for hit in hits:  # the best come first
            scores.setdefault(hit.tool.address, []).append(hit.score)
        best = sorted(scores, key=lambda a: (-sum(scores[a][:BEST_TOOLS]), a))
        siblings: dict[tuple[str, ...], Siblings] = {}
        for address in best:
            names = self._index.names(address)
            hidden = {tool.tool for tool in shown if tool.server == address.server}
            rest = tuple(name for name in names if name not in hidden)
            siblings.setdefault((address.server, *names), Siblings(address, rest))
            if len(siblings) == BEST_SERVERS:
                break
        return tuple(entry for entry in siblings.values() if entry.names)


# The index


class _Document(msgspec.Struct, frozen=True):
    tool: ToolIdentifier
    counts: Counts
    lengths: tuple[int, ...]
    spellings: tuple[str, ...]  # of the tool's own words; those of its server's are there


class _Server(msgspec.Struct, frozen=True):
    fingerprint: Fingerprint
    documents: tuple[int, ...]
    spellings: tuple[str, ...]


class _Posting(msgspec.Struct):
    """A word's weight in each tool that has it, at most `peak`; computed when the means had this `age`."""

    weights: dict[int, float]
    peak: float
    age: int


class Index:
    """The tools of some servers, and the weight of each word in each of them."""

    def __init__(self, words: Words, counted: dict[bytes, FieldCounts] | None = None) -> None:
        self._words = words
        self._counted: dict[bytes, FieldCounts] = (
            {} if counted is None else counted
        )  # by definition
        self._servers: dict[ServerAddress, _Server] = {}
        self._documents: dict[int, _Document] = {}
        self._names: dict[str, set[int]] = {}  # tools by their own names, case folded
        self._next = 0
        self._sums = [0] * len(WEIGHTS)
        self._means: tuple[float, ...] = (1.0,) * len(WEIGHTS)
        self._postings: dict[str, _Posting] = {}
        self._same: dict[Places, Places] = {}  # interned: few are different
        self._age = 0  # how often the means have changed
        self._close: CloseWords | None = None  # of all words, since a query first needed it

    def __len__(self) -> int:
        return len(self._documents)

    def count(self, shows: Shows | None) -> int:
        """Return how many tools are searched."""
        return len(self._documents) if shows is None else len(self._shown(shows))

    def names(self, address: ServerAddress) -> list[str]:
        """Return the tools of a server in its own order."""
        return [self._documents[n].tool.tool for n in self._servers[address].documents]

    @property
    def servers(self) -> Mapping[ServerAddress, object]:
        return self._servers

    def is_current(self, address: ServerAddress, fingerprint: Fingerprint) -> bool:
        """Whether the index has this server with this fingerprint."""
        known = self._servers.get(address)
        return known is not None and known.fingerprint == fingerprint

    def put(
        self,
        address: ServerAddress,
        tools: Iterable[Definition],
        about: ServerDescription,
        fingerprint: Fingerprint = (),
        *,
        weigh: bool = True,
    ) -> None:
        """Replace a server's tools by these. Without `weigh`, the caller has to call `fill`."""
        self._drop(address)
        shared = server_counts(about, self._words)
        numbers: list[int] = []
        for definition in tools:
            own = self._counts_of(definition)
            tool = ToolIdentifier(address.toolbox, address.server, definition.name)
            lengths = (*own.lengths, *shared.lengths)
            number, self._next = self._next, self._next + 1
            document = _Document(tool, self._both(own, shared), lengths, own.spellings)
            self._documents[number] = document
            self._names.setdefault(definition.name.casefold(), set()).add(number)
            numbers.append(number)
            self._sums = [total + more for total, more in zip(self._sums, lengths, strict=True)]
        self._servers[address] = _Server(fingerprint, tuple(numbers), shared.spellings)
        self._settle()
        for number in numbers if weigh else ():
            self._enter(number)

    def remove(self, address: ServerAddress) -> None:
        self._drop(address)
        self._settle()

    def fill(self) -> None:
        """Compute all weights, so that no query has to."""
        postings: dict[str, dict[int, float]] = {}
        for number, document in self._documents.items():
            norms = self._norms(document.lengths)
            for word, counts in document.counts.items():
                weight = _weight(counts, norms)
                held = postings.get(word)
                if held is None:
                    postings[word] = {number: weight}
                else:
                    held[number] = weight
        age = self._age
        self._postings = {
            word: _Posting(held, max(held.values()), age) for word, held in postings.items()
        }

    def named(self, query: str, shows: Shows | None = None) -> list[ToolIdentifier]:
        """Return the tools with this full name: `tool`, `server/tool`, `toolbox/server/tool`, or flat."""
        wanted = query.strip().casefold()
        ends = [at + 1 for at, sign in enumerate(wanted) if sign == "/"][:2]
        flat = parse_tool_name(wanted)
        tails = [wanted[at:] for at in (0, *ends)] + ([flat.tool] if flat else [])
        numbers = {number for tail in tails for number in self._names.get(tail, ())}
        tools = (self._documents[number].tool for number in numbers)
        return sorted(
            t for t in tools if wanted in _names(t) and (shows is None or shows(t.address))
        )

    def search(self, query: str, shows: Shows | None = None, most: int = 100) -> list[Hit]:
        """Return the best tools in which a word of the query occurs; equal ones are sorted by name."""
        return self.ranked(self.with_close_words(self._words.asked(query)), shows, most)

    def ranked(self, asked: QueryWords, shows: Shows | None, most: int) -> list[Hit]:
        """The same for a query that is split already."""
        factors = self._factors(asked)
        words = sorted(factors, key=lambda word: (-factors[word], word))
        terms = [self._term(word, factors[word]) for word in words]
        if shows is None:
            scores = best_scores(terms, most)
        else:
            scores = scores_of(self._shown(shows), terms, most)
        hits = [Hit(self._documents[number].tool, score) for number, score in scores.items()]
        hits.sort(key=lambda hit: (-hit.score, hit.tool))
        return hits[:most]

    def _shown(self, shows: Shows) -> list[int]:
        servers = self._servers.items()
        return [number for at, server in servers if shows(at) for number in server.documents]

    def rarity(self, word: str) -> float:
        """Return the inverse document frequency of this word."""
        held = self._postings.get(word)
        holders = len(held.weights) if held else 0
        return log(1 + (len(self._documents) - holders + 0.5) / (holders + 0.5))

    def holds(self, word: str) -> bool:
        return word in self._postings

    def most_possible(self, asked: QueryWords) -> float:
        """Return the best possible score: of a tool whose fields are the query itself."""
        return sum(self._factor(word, asked) for word in asked.times)

    def _factors(self, asked: QueryWords) -> dict[str, float]:
        factors = {word: self._factor(word, asked) for word in asked.times if self.holds(word)}
        for words in asked.close.values():
            for stem in map(self._words.stem, words):
                factors[stem] = factors.get(stem, 0.0) + CLOSE * self.rarity(stem)
        return factors

    def _factor(self, word: str, asked: QueryWords) -> float:
        twice = asked.times[word] > 1 and len(asked.times) <= BRIEF
        return self.rarity(word) * (2 if twice else 1)

    # Words that no tool has

    def with_close_words(self, asked: QueryWords) -> QueryWords:
        """Return the query with close words for those that no tool has, if some tool has close ones."""
        strange = [stem for stem in asked.times if not self.holds(stem)][:MOST_CORRECTED]
        if not strange:
            return asked
        close = {stem: self._close_to(asked.spelled[stem]) for stem in strange}
        return msgspec.structs.replace(
            asked, close={s: words for s, words in close.items() if words}
        )

    def _close_to(self, word: str) -> tuple[str, ...]:
        """Return close words, one of each stem; those that most tools have come first."""
        if self._close is None:
            spelled = [document.spellings for document in self._documents.values()]
            spelled += [server.spellings for server in self._servers.values()]
            self._close = CloseWords(set(self._postings).union(*spelled))
        stem = self._words.stem
        by_stem = {
            stem(other): other for other in sorted(self._close.of(word))
        }  # rather words than stems
        known = [other for found, other in by_stem.items() if self.holds(found)]
        known.sort(key=lambda other: (-len(self._postings[stem(other)].weights), other))
        return tuple(known[:MOST_CLOSE])

    def is_in_english(self) -> bool:
        """Whether the tools are described in English, as far as their words tell."""
        plain = sum(word.isascii() for word in self._postings)
        if not plain or plain < ENGLISH * len(self._postings):
            return False
        stems = map(self._words.stem, FOREIGN_WORDS)
        foreign = {
            n for stem in stems if stem in self._postings for n in self._postings[stem].weights
        }
        return len(foreign) < FOREIGN * len(self._documents)

    # Updating

    def count_words(self, tools: Iterable[Definition]) -> None:
        """Count and cache the words of tools that are about to be added."""
        for tool in tools:
            self._counts_of(tool)

    def _counts_of(self, definition: Definition) -> FieldCounts:
        counted = self._counted.get(definition.raw)
        if counted is None:
            if len(self._counted) >= MOST_COUNTED:
                self._counted.clear()
            counted = self._counted[definition.raw] = tool_counts(definition, self._words)
        return counted

    def _drop(self, address: ServerAddress) -> None:
        self._close = None
        gone = self._servers.pop(address, None)
        for number in gone.documents if gone else ():
            document = self._documents.pop(number)
            self._names[document.tool.tool.casefold()].discard(number)
            for word in document.counts:
                held = self._postings[word].weights
                del held[number]
                if not held:
                    del self._postings[word]
            self._sums = [s - less for s, less in zip(self._sums, document.lengths, strict=True)]

    def _settle(self) -> None:
        count = max(len(self._documents), 1)
        means = tuple(_stepped(total / count) for total in self._sums)
        if means != self._means:
            self._means = means
            self._age += 1

    def _enter(self, number: int) -> None:
        """Add a tool's words. Outdated weights of a word are computed anew when a query needs them."""
        document = self._documents[number]
        norms = self._norms(document.lengths)
        for word, counts in document.counts.items():
            held = self._postings.get(word)
            if held is None:
                held = self._postings[word] = _Posting({}, 0.0, self._age)
            weight = held.weights[number] = _weight(counts, norms)
            held.peak = max(held.peak, weight)

    def _term(self, word: str, factor: float) -> Term:
        held = self._postings[word]
        if held.age != self._age:
            for number in held.weights:
                document = self._documents[number]
                held.weights[number] = _weight(document.counts[word], self._norms(document.lengths))
            held.peak = max(held.weights.values())
            held.age = self._age
        return factor, held.weights, factor * held.peak

    def _both(self, own: FieldCounts, shared: FieldCounts) -> Counts:
        counts = {**shared.counts, **own.counts}
        for word in shared.counts.keys() & own.counts.keys():
            both = own.counts[word] + shared.counts[word]
            counts[word] = self._same.setdefault(both, both)
        return counts

    def _norms(self, lengths: Sequence[int]) -> list[float]:
        return [
            weight / (1 - B + B * length / mean)
            for weight, length, mean in zip(WEIGHTS, lengths, self._means, strict=True)
        ]


def _names(tool: ToolIdentifier) -> tuple[str, ...]:
    flat = generate_tool_name(tool.toolbox, tool.server, tool.tool)
    known = (tool.tool, f"{tool.server}/{tool.tool}", str(tool), flat)
    return tuple(name.casefold() for name in known)


def _weight(counts: Places, norms: list[float]) -> float:
    value = 0.0
    for field, times in counts:
        value += times * norms[field]
    return value / (K1 + value)


def _stepped(mean: float) -> float:
    """Round the mean to the nearest step."""
    return 1.02 ** round(log(mean) / STEP) if mean > 0 else 1.0


# Scoring: sums up the weights of a query's words, skipping tools that can't be among the best


def best_scores(terms: Sequence[Term], most: int) -> Scores:
    """Return the scores of the best tools, `most` of them and all that equal the last.

    `terms` begin with the words of the largest factor. As soon as the remaining words can't lift a new
    tool among the best, only tools with a score are considered.
    """
    scores: Scores = {}
    left, last = SLACK * sum(adds for *_, adds in terms), 0.0
    worth, unread = WORTH * left, sum(len(weights) for _, weights, _ in terms)
    for number, (factor, weights, adds) in enumerate(terms):
        if left < worth and unread > FEW and len(scores) > most:
            last = _last(scores, most, last)
            if left < last:
                return _narrowed(scores, terms[number:], most, last, left)
        if scores:
            before = scores.get
            for tool, weight in weights.items():
                scores[tool] = before(tool, 0.0) + factor * weight
        else:
            scores = dict(zip(weights, map(factor.__mul__, weights.values()), strict=True))
        left -= adds
        unread -= len(weights)
    return _best(scores, most, last)


def scores_of(tools: Collection[int], terms: Sequence[Term], most: int) -> Scores:
    """The same among some tools only."""
    scores: Scores = {}
    wanted = dict.fromkeys(tools, 0.0)
    for factor, weights, _ in terms:
        for tool in wanted.keys() & weights.keys():
            scores[tool] = scores.get(tool, 0.0) + factor * weights[tool]
    return _best(scores, most, 0.0)


def _narrowed(scores: Scores, terms: Sequence[Term], most: int, last: float, left: float) -> Scores:
    """Add the remaining words to the tools that can still be among the best, dropping others."""
    for factor, weights, adds in terms:
        if len(scores) > 2 * most:
            last = _last(scores, most, last)
            least = last - left
            scores = {tool: score for tool, score in scores.items() if score >= least}
        if len(scores) < len(weights):
            weight_in = weights.get
            for tool, score in scores.items():
                weight = weight_in(tool)
                if weight is not None:
                    scores[tool] = score + factor * weight
        else:
            for tool in scores.keys() & weights.keys():
                scores[tool] += factor * weights[tool]
        left -= adds
    return _best(scores, most, last)


def _best(scores: Scores, most: int, last: float) -> Scores:
    if len(scores) <= most:
        return scores
    last = _last(scores, most, last)
    return {tool: score for tool, score in scores.items() if score >= last}


def _last(scores: Scores, most: int, least: float) -> float:
    """Return the score of the last among the best, which is known to be at least `least`."""
    high = [score for score in scores.values() if score >= least]
    high.sort(reverse=True)
    return high[most - 1]
