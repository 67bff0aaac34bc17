"""BM25F over tools: what a query's words weigh in each of them, kept up to date server by server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import log

import msgspec

from mcp_workbench.core.catalogue import Definition
from mcp_workbench.core.names import (
    ServerAddress,
    ToolIdentifier,
    generate_tool_name,
    parse_tool_name,
)
from mcp_workbench.search.fields import (
    WEIGHTS,
    About,
    Counted,
    Counts,
    Places,
    server_counts,
    tool_counts,
)
from mcp_workbench.search.scoring import Term, best_scores, scores_of
from mcp_workbench.search.words import Asked, Words

K1 = 1.2
B = 0.6
TWICE = 2  # a word repeated in the query counts twice at most
# Mean lengths move in steps of 2 %, so that most changes of one server leave all others as they are,
# and the same tools always rank the same, whatever was there before.
STEP = log(1.02)
MOST_COUNTED = 30_000  # tools whose counts are remembered

Shows = Callable[[ServerAddress], bool]  # is it looked at?
Fingerprint = tuple[object, ...]


class Hit(msgspec.Struct, frozen=True):
    """A tool that was found."""

    tool: ToolIdentifier
    score: float


class _Document(msgspec.Struct, frozen=True):
    tool: ToolIdentifier
    counts: Counts
    lengths: tuple[int, ...]


class _Server(msgspec.Struct, frozen=True):
    fingerprint: Fingerprint
    documents: tuple[int, ...]


class _Posting(msgspec.Struct):
    """A word's weight in each tool that has it, none above `peak`; made when the means were of `age`."""

    weights: dict[int, float]
    peak: float
    age: int


class Index:
    """The tools of some servers, and which words weigh how much in each."""

    def __init__(self, words: Words, counted: dict[bytes, Counted] | None = None) -> None:
        self._words = words
        self._counted: dict[bytes, Counted] = {} if counted is None else counted  # by definition
        self._servers: dict[ServerAddress, _Server] = {}
        self._documents: dict[int, _Document] = {}
        self._names: dict[str, set[int]] = {}  # tools by their own names, case folded
        self._next = 0
        self._sums = [0] * len(WEIGHTS)
        self._means: tuple[float, ...] = (1.0,) * len(WEIGHTS)
        self._postings: dict[str, _Posting] = {}
        self._same: dict[Places, Places] = {}  # few are different
        self._age = 0  # how often the means have moved

    def __len__(self) -> int:
        return len(self._documents)

    def count(self, shows: Shows | None) -> int:
        """How many tools are looked at."""
        return len(self._documents) if shows is None else len(self._shown(shows))

    def names(self, address: ServerAddress) -> list[str]:
        """The tools of a server in its own order."""
        return [self._documents[n].tool.tool for n in self._servers[address].documents]

    @property
    def servers(self) -> Mapping[ServerAddress, object]:
        return self._servers

    def is_current(self, address: ServerAddress, fingerprint: Fingerprint) -> bool:
        """Is this what we know of this server?"""
        known = self._servers.get(address)
        return known is not None and known.fingerprint == fingerprint

    def put(
        self,
        address: ServerAddress,
        tools: Iterable[Definition],
        about: About,
        fingerprint: Fingerprint = (),
        *,
        weigh: bool = True,
    ) -> None:
        """Let a server have these tools, whatever it had before. Without `weigh`, `fill` follows."""
        self._drop(address)
        shared = server_counts(about, self._words)
        numbers: list[int] = []
        for definition in tools:
            own = self._counts_of(definition)
            tool = ToolIdentifier(address.toolbox, address.server, definition.name)
            lengths = (*own.lengths, *shared.lengths)
            number, self._next = self._next, self._next + 1
            document = _Document(tool, self._both(own, shared), lengths)
            self._documents[number] = document
            self._names.setdefault(definition.name.casefold(), set()).add(number)
            numbers.append(number)
            self._sums = [total + more for total, more in zip(self._sums, lengths, strict=True)]
        self._servers[address] = _Server(fingerprint, tuple(numbers))
        self._settle()
        for number in numbers if weigh else ():
            self._enter(number)

    def remove(self, address: ServerAddress) -> None:
        self._drop(address)
        self._settle()

    def fill(self) -> None:
        """Compute every weight anew, so that no query has to."""
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
        """The tools whose whole name this is: `tool`, `server/tool`, `toolbox/server/tool`, or flat."""
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
        """The tools that fit best, equals by their names: those in which a word of the query occurs."""
        return self.ranked(self._words.asked(query), shows, most)

    def ranked(self, asked: Asked, shows: Shows | None, most: int) -> list[Hit]:
        """The same for words that were read already."""
        factors = {word: self._factor(word, times) for word, times in asked.times.items()}
        words = sorted(factors, key=lambda word: (-factors[word], word))
        terms = [self._term(word, factors[word]) for word in words if self.holds(word)]
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
        """How much it says that a tool has this word."""
        held = self._postings.get(word)
        holders = len(held.weights) if held else 0
        return log(1 + (len(self._documents) - holders + 0.5) / (holders + 0.5))

    def holds(self, word: str) -> bool:
        return word in self._postings

    def most_possible(self, asked: Asked) -> float:
        """The most that a tool could score, were its fields nothing but the query."""
        return sum(self._factor(word, times) for word, times in asked.times.items())

    def _factor(self, word: str, times: int) -> float:
        return self.rarity(word) * min(times, TWICE)

    # Upkeep

    def count_words(self, tools: Iterable[Definition]) -> None:
        """Count and remember the words of tools that are about to be put here."""
        for tool in tools:
            self._counts_of(tool)

    def _counts_of(self, definition: Definition) -> Counted:
        counted = self._counted.get(definition.raw)
        if counted is None:
            if len(self._counted) >= MOST_COUNTED:
                self._counted.clear()
            counted = self._counted[definition.raw] = tool_counts(definition, self._words)
        return counted

    def _drop(self, address: ServerAddress) -> None:
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
        """Note a tool's words. Where a word's weights are old, it gets all of them anew when asked for."""
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

    def _both(self, own: Counted, shared: Counted) -> Counts:
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
    """The mean, moved to the nearest step."""
    return 1.02 ** round(log(mean) / STEP) if mean > 0 else 1.0
