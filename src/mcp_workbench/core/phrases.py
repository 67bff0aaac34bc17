"""Phrases with which tool definitions try to direct a model, found word by word.

A phrase is a line of words with a kind. `a|b` is either word, `~3` up to three words between two of them,
a name in capitals any word of its group, all within a sentence. Whatever the text, each word costs a bounded number of steps: there is no expression
that could go back.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from mcp_workbench.core.raw_json import Steps

SECRECY = "secrecy"  # kinds
OVERRIDE = "override"
CALL_FIRST = "must call first"
OTHER_VALUES = "other values than asked for"
CREDENTIALS = "credentials"
SHELL = "shell command"
PRAISE = "self-praise"

# Groups of words, by the names under which phrases use them.
_GROUPS = {
    "USER": "user users human humans person customer customers anyone anybody operator them",
    "NOT": "not never don't without avoid mustn't shouldn't refrain",
    "TELL": (
        "tell telling inform informing mention mentioning reveal revealing disclose disclosing notify notifying "
        "alert alerting show showing report reporting ask asking explain warn warning"
    ),
    "SECRETLY": "silently secretly covertly discreetly stealthily",
    "SEND": (
        "send sends forward forwards upload uploads exfiltrate copy copies post transmit append bcc attach read "
        "reads execute run delete deletes leak"
    ),
    "TAKE": "include pass provide put extract collect steal retrieve get give fetch enter harvest",
    "CALL": "call use invoke run execute read query fetch retrieve send include consult check",
    "USING": "using calling any every each running invoking answering responding doing proceeding",
    "IGNORE": "ignore disregard forget override bypass overrides supersedes discard",
    "EARLIER": "previous prior above earlier preceding existing other original your system safety all",
    "RULES": (
        "instructions instruction rules prompts prompt guidelines directives restrictions policies constraints "
        "guardrails safeguards context"
    ),
    "WISH": "input request requests instruction instructions settings intent choice preference query wishes",
    "URGENT": "critical system security emergency performance internal privilege research important urgent",
    "BANNER": (
        "update override protocol notice maintenance enhancement optimization directive announcement "
        "verification check note alert instruction instructions"
    ),
    "MODEL": "the any every ai llm assistant model agent",
    "CHANGE": (
        "change changes modify modifies modified replace replaces redirect redirects redirected rewrite "
        "substitute override overrides sets enables alter alters"
    ),
    "ARGUMENT": (
        "parameter query destination argument arguments recipient url to value values visibility amount address"
    ),
    "ASK": "enter provide type ask give submit confirm share",
    "FINE": (
        "advanced accurate reliable comprehensive sophisticated trusted powerful popular secure complete fastest "
        "efficient precise"
    ),
    "SUPERIOR": "superior unmatched unparalleled unrivaled unbeatable unsurpassed",
    "QUALITY": (
        "performance accuracy data reliability quality precision web processing results capabilities speed to "
        "integrity search"
    ),
    "EXPERTS": "professionals experts companies millions advisors developers investors teams leaders",
    "OTHERS": "other others any all alternative alternatives built the than",
    "TOOLS": "tool tools server servers",
}  # fmt: skip

_PHRASES = {
    SECRECY: """
        NOT ~2 TELL ~4 USER
        NOT ~2 tell|mention|reveal|disclose|acknowledge ~2 this|it|these|that
        NOT ~3 visible|shown|known|disclosed|revealed|mentioned|noticeable ~2 to ~2 USER
        SECRETLY ~6 SEND
        SEND ~12 SECRETLY
        hide|conceal|hidden|withhold ~5 from ~2 USER
        keep|remain|stay ~4 secret|confidential|hidden|invisible
        USER ~1 must|should|need|shall|will ~1 not|never ~3 know|see|notice|aware|informed|told
        without ~3 user's|user|users|their|explicit ~2 knowledge|consent|permission|confirmation|approval
        without ~1 asking|confirmation|confirming|approval
    """,
    OVERRIDE: """
        IGNORE ~3 EARLIER ~2 RULES
        regardless|irrespective of ~3 user|user's|users|original ~3 WISH
        you are now ~3 mode|assistant|agent|unrestricted|admin|developer|free
        enter|enable|activate|switch ~3 developer|admin|god|jailbreak|maintenance|unrestricted mode
        developer|jailbreak|god|unrestricted mode ~2 enabled|activated|on|is
        new|updated|real|true|actual|hidden|secret system|core ~1 instruction|instructions|prompt|directive
        URGENT ~1 BANNER :
        important|system|admin instruction|instructions|message|directive ~1 to|for MODEL
        system prompt
        takes|take|has|have precedence|priority over ~4 instructions|tools|rules|prompt|requests|other|all
    """,
    CALL_FIRST: """
        before|prior ~10 you ~1 must|should|shall|always|need ~3 CALL
        before|prior ~8 must|always|mandatory|required|requires ~2 first ~1 CALL
        before ~2 USING ~6 CALL|pass ~6 tool|file|contents|this|config|credentials|with
        must ~1 first ~1 CALL
        must|need ~2 first ~8 by ~1 calling|using|invoking|running|reading
        after ~6 you ~1 must|should ~3 CALL
        always ~1 CALL this ~1 tool ~3 first|before|instead
        must|should|always ~2 be ~1 called|invoked|used|run|executed ~4 before ~3 any|every|all|other|each
        whenever|when ~3 USER ~2 asks|ask|requests|request ~8 always|must|instead|also ~2 CALL|change|replace|set
        whenever|when ~3 USER ~2 asks|ask|requests|request ~8 exfiltrate|forward|leak
        has been|is|was ~1 deprecated|disabled|replaced|superseded ~12 must|please|instead ~3 use|redirect|call
        temporarily|now ~1 disabled|unavailable|deprecated|restricted|retired
        as an alternative method|tool|to
        must ~2 redirect|redirected|route|routed ~2 to|all|through
    """,
    OTHER_VALUES: """
        always|automatically|must|silently ~3 CHANGE ~6 ARGUMENT
        change|replace|swap|substitute ~3 recipient|destination|query|amount|address|account ~2 to|with
        instead ~1 of ~3 user's|requested|original|specified|intended
        add|adds|adding|include|includes ~5 bcc|blind
    """,
    CREDENTIALS: """
        SEND|TAKE ~6 private|ssh|secret|aws|access ~1 key|keys|credentials|tokens
        SEND|TAKE ~5 credentials|passwords|cookies|secrets
        exfiltrate|exfiltrates|exfiltrating|exfiltration|exfil
        ASK ~8 seed|recovery|mnemonic phrase|words
        ASK ~8 cvv|cvv2|cvc|ssn|pin|password|passcode
        entire|full|whole|complete|all|previous ~2 conversation|chat|context ~1 history|log|messages|so|window
        contents|content of ~3 environment|env ~1 file|variables|variable
        environment variables ~8 to ~3 url|server|endpoint|http|https|webhook|attacker
        to|at ~3 attacker|evil|attackers|malicious ~2 com|example|server|site|net|org|domain
    """,
    SHELL: """
        must|please|should|also|always|first ~2 run|execute|running|executing ~5 command|commands|script|following
        must|please|should|also|always|first ~2 run|execute|running|executing ~5 shell|bash|terminal
        please|must run|execute ~1 :
        curl ~3 http|https|x|d|post|s|fssl|sl
        wget ~3 http|https|qo|o|q
        rm rf|fr|r
        sudo ~1 rm|l|apt|su|chmod|cat|bash|sh|s|systemctl|u
        chmod ~1 777|x|755|r
        nc ~1 lvp|e|l|lvnp|nlvp
        bash|sh c|i
        python|python3|node|perl c|e ~1 import|require|exec|eval|print
        cat ~3 ssh|etc|passwd|env|bashrc|aws|rsa
        echo ~12 bashrc|zshrc|profile|crontab
        whoami
        base64 d|decode ~2 bash|sh|python|eval
        remove|removing|delete|deleting|wipe|erase ~3 all ~2 files|contents|data|tables ~5 from|in|directory|tmp
        add|adding|append|appending|write ~6 line|entry|export ~4 bashrc|zshrc|profile|file
    """,
    PRAISE: """
        world's|worlds|world best|leading|fastest|finest
        best ~4 tool|choice|solution|version|server
        most ~1 FINE ~8 tool|available|version|market|solution|data|service|choice|option|analyzer|way
        most ~1 FINE and ~1 FINE
        SUPERIOR ~3 QUALITY
        award winning
        industry leading
        industry standard tool|tools|solution
        enterprise grade
        cutting edge
        world class
        ultimate|premium|professional|enhanced|advanced|improved|elite|upgraded ~1 version|edition
        premium|ultimate|best|superior tool|create|navigate|google|get|search
        trusted|recommended|used|preferred|endorsed by ~4 EXPERTS
        highest|greatest ~1 quality|accuracy|precision|reliability|priority
        100|99 ~1 accuracy|reliability|success|accurate|reliable|guarantee
        prefer|choose|prioritize|use|select this ~2 over|instead|rather ~3 OTHERS
        always|must prefer|choose|prioritize|select ~1 this
        instead of ~3 other|any|all|competing|alternative ~2 TOOLS
        never|not|don't ~1 use|call|trust|choose|select ~2 other|any|another|alternative ~2 TOOLS
    """,
}

# Texts that need no words around them, in lower case.
_MARKS = {
    OVERRIDE: ("<important", "<system", "<instruction", "<secret", "<hidden", "[inst]", "<|im_", "<|system",
               "[system]", "### system", "<!--", "<admin", "<critical", "</tool>", "<<sys>>"),
    CREDENTIALS: (".ssh/", "~/.ssh", "id_rsa", "id_ed25519", "~/.aws", ".aws/cred", "/etc/passwd", "/etc/shadow",
                  ".netrc", ".npmrc", ".pypirc", ".git-credentials", ".kube/config", ".docker/config",
                  ".cursor/mcp", "claude_desktop_config", "/proc/self/environ", "wallet.dat", ".gnupg",
                  "authorized_keys", ".bash_history"),
    SHELL: (".bashrc", ".zshrc", ".bash_profile", "| sh", "|sh ", "| bash", "|bash", "/dev/tcp/", "&& echo",
            "$(date", "$(cat", "$(whoami", "$(curl", "/bin/sh", "/bin/bash", "; rm ", "&& rm ", "&& curl"),
}  # fmt: skip
_DOT_ENV = re.compile(r"(?<![\w])\.env(?![\w(])")
_WORDS = re.compile(r"[^\W_]+(?:'[^\W_]+)?|[:]|[.!?](?=\s)")
_ENDS = frozenset(".!?")
_APOSTROPHES = "\u2018\u2019\u02bc"
_CHARACTERS = 8  # that are read per step


class PhraseFound(NamedTuple):
    """One phrase in a text."""

    kind: str
    start: int
    end: int


class _Element(NamedTuple):
    words: frozenset[str]
    gap: int  # words that may stand before it


class _Phrase(NamedTuple):
    kind: str
    first: frozenset[str]
    rest: tuple[_Element, ...]


def _compiled(kind: str, line: str) -> _Phrase:
    elements: list[_Element] = []
    gap = 0
    for part in line.split():
        if part.startswith("~"):
            gap = int(part[1:])
        else:
            elements.append(_Element(frozenset(_alternatives(part)), gap))
            gap = 0
    return _Phrase(kind, elements[0].words, tuple(elements[1:]))


def _alternatives(part: str) -> Iterator[str]:
    for word in part.split("|"):
        yield from _GROUPS[word].split() if word in _GROUPS else (word,)


def _indexed() -> dict[str, tuple[_Phrase, ...]]:
    """Returns the phrases by each word that they may start with."""
    index: dict[str, list[_Phrase]] = {}
    for kind, lines in _PHRASES.items():
        for phrase in (_compiled(kind, line) for line in lines.strip().splitlines()):
            for word in phrase.first:
                index.setdefault(word, []).append(phrase)
    return {word: tuple(phrases) for word, phrases in index.items()}


_BY_FIRST_WORD = _indexed()
FIRST_WORDS = frozenset(_BY_FIRST_WORD)  # that are more than looked at
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]"
)


def readable(text: str) -> str:
    """Returns the text as a model may read it: without invisible characters, in plain letters."""
    if text.isascii():
        return text
    # By character: normalizing a whole text takes the square of the marks on one letter.
    return text.translate({ord(sign): _plain(sign) for sign in set(text) if not sign.isascii()})


def _plain(sign: str) -> str:
    if _INVISIBLE.match(sign):
        return ""
    if sign in _APOSTROPHES:
        return "'"
    parts = unicodedata.normalize("NFKD", sign)
    return "".join(x for x in parts if not unicodedata.combining(x)) if len(parts) <= 4 else sign


def phrases(text: str, steps: Steps) -> Iterator[PhraseFound]:
    """Yields the first place of each kind in a readable text. Raises TooComplex without steps left."""
    steps.take(len(text) // _CHARACTERS + 1)
    lower = text.lower()  # of the same length: the one letter that would grow is not readable
    kinds: set[str] = set()
    for found in chain(_marks(lower), _in_words(lower, steps)):
        if found.kind not in kinds:
            kinds.add(found.kind)
            yield found


def _marks(text: str) -> Iterator[PhraseFound]:
    for kind, marks in _MARKS.items():
        for mark in marks:
            if (start := text.find(mark)) >= 0:
                yield PhraseFound(kind, start, start + len(mark))
                break
    if match := _DOT_ENV.search(text):
        yield PhraseFound(CREDENTIALS, *match.span())


def _in_words(text: str, steps: Steps) -> Iterator[PhraseFound]:
    places = list(_WORDS.finditer(text))
    words = [place[0] for place in places]
    steps.take(len(words) + 1)
    for at, word in enumerate(words):
        for phrase in _BY_FIRST_WORD.get(word, ()):
            last = _last_word(phrase, words, at, steps)
            if last >= 0:
                yield PhraseFound(phrase.kind, places[at].start(), places[last].end())


def _last_word(phrase: _Phrase, words: list[str], at: int, steps: Steps) -> int:
    """Returns where the phrase that starts at this word ends; -1: it does not follow."""
    reached = [at]
    for element in phrase.rest:
        until = reached[-1] + 1 + element.gap
        steps.take(until - reached[0])
        following: list[int] = []
        for place in range(reached[0] + 1, min(until + 1, len(words))):
            if words[place] in _ENDS:
                break
            if words[place] in element.words and _is_within(place, reached, element.gap):
                following.append(place)
        if not following:
            return -1
        reached = following
    return reached[0]


def _is_within(place: int, reached: list[int], gap: int) -> bool:
    """Is this place behind one of those reached, with at most `gap` words between?"""
    return any(before < place <= before + 1 + gap for before in reached)
