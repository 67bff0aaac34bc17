"""What the source of a script says that its interpreter does not: functions that are never awaited."""

from contextlib import suppress
from io import StringIO
from tokenize import (
    COMMENT,
    DEDENT,
    ERRORTOKEN,
    INDENT,
    NEWLINE,
    NL,
    OP,
    TokenError,
    TokenInfo,
    generate_tokens,
)

LONGEST_LINE = 2000  # characters
_BETWEEN = (NEWLINE, INDENT, DEDENT)  # statements


def unawaited_functions(source: str) -> list[tuple[str, int]]:
    """The lines that are nothing but a call of an async function of the script, which then does not run.

    The interpreter does not report these. May take a while: a quarter of a second for the longest scripts.
    """
    tokens = _tokens(source)
    names = {
        third.string
        for first, second, third in zip(tokens, tokens[1:], tokens[2:], strict=False)
        if (first.string, second.string) == ("async", "def")
    }
    idle: list[tuple[str, int]] = []
    for number, token in enumerate(tokens):
        is_first = number == 0 or tokens[number - 1].type in _BETWEEN
        if is_first and token.string in names and _is_whole_call(tokens, number + 1):
            idle.append((token.string, token.start[0]))
    return idle


def _is_whole_call(tokens: list[TokenInfo], number: int) -> bool:
    """Whether a call's parenthesis opens here, and the line ends when it is closed."""
    if tokens[number].string != "(":
        return False
    depth = 0
    for index in range(number, len(tokens)):  # not a copy of the rest, for each of very many lines
        token = tokens[index]
        if token.type == OP and token.string in "([{":
            depth += 1
        elif token.type == OP and token.string in ")]}":
            depth -= 1
        elif not depth:
            return token.type in _BETWEEN
    return False


def _tokens(source: str) -> list[TokenInfo]:
    """The tokens; none if Python can't read the source, or a line is so long that it would read it again and again."""
    tokens: list[TokenInfo] = []
    if "\0" in source or max(map(len, source.split("\n"))) > LONGEST_LINE:
        return []  # Python 3.13 fails inside for a NUL
    with suppress(TokenError, SyntaxError):  # the interpreter takes a little more than Python
        for token in generate_tokens(StringIO(source).readline):
            if token.type == ERRORTOKEN:
                return []
            if token.type not in (COMMENT, NL):
                tokens.append(token)
        return tokens
    return []
