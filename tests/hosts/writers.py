"""Files as nobody tidies them up: made-up values in JSON with comments and in TOML."""

# What is made up has no types.
# pyright: basic

from __future__ import annotations

import json
from functools import cache
from itertools import cycle, product

from hypothesis import strategies as st

names = st.text(
    st.characters(codec="utf-8", exclude_characters="\x7f"), max_size=6
) | st.sampled_from(["a", "b", "mcpServers", "// no comment", "/*", 'quo"te', "comma,", "{", "#"])
scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | names
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
# What may be said in a comment: whatever looks like the text around it.
remarks = st.text(st.sampled_from('ab ,:{}[]"*\\#='), max_size=8)


KINDS = ("", " ", "\t", "newline", "indent", "line", "block")
REMARKS = [
    "", "a", " ,", ",", ":", "{", "}", "[]", '"', '"a": "b",', "/*", "//", "/", "\\", '\\"', "# a =", "= [b", "ab ,:{}",
]  # fmt: skip


@cache
def gaps(newline: str, indent: str, liberties: bool) -> st.SearchStrategy[str]:
    """Space and comments between two tokens: all rows of up to three, made once and drawn at once."""
    remarks = cycle(REMARKS)

    def written(kind: str) -> str:
        if kind == "line":
            return f"// {next(remarks)}{newline}{indent}"
        if kind == "block":
            return f"/*{next(remarks)}*/"
        return {"newline": newline, "indent": newline + indent}.get(kind, kind)

    rows = [row for length in range(4) for row in product(KINDS, repeat=length)]
    if not liberties:
        rows = [row for row in rows if not {"line", "block"} & set(row)]
    return st.sampled_from(["".join(map(written, row)) for row in rows for _ in range(3)])


@st.composite
def jsonc_texts(draw, document, liberties=True) -> str:
    """The text of a document, with anything between its tokens that may stand there."""
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    indent = draw(st.sampled_from(["", "  ", "    ", "\t"]))
    tidy = draw(st.booleans())
    between = gaps(newline, indent, liberties)

    def gap() -> str:
        return "" if tidy else draw(between)

    def written(value, depth: int) -> str:
        if isinstance(value, dict):
            items = [
                f"{gap()}{json.dumps(k, ensure_ascii=False)}{gap()}:{gap()} {written(v, depth + 1)}"
                for k, v in value.items()
            ]
            return "{" + listed(items, depth) + "}"
        if isinstance(value, list):
            return "[" + listed([gap() + written(v, depth + 1) for v in value], depth) + "]"
        return json.dumps(value, ensure_ascii=False)

    def listed(items: list[str], depth: int) -> str:
        if not items:
            return gap()
        inner = newline + indent * (depth + 1) if tidy and indent else " "
        outer = newline + indent * depth if tidy and indent else ""
        trailing = "," if liberties and not tidy and draw(st.booleans()) else ""
        return inner + f"{gap()},{inner}".join(items) + gap() + trailing + gap() + outer

    mark = "\ufeff" if draw(st.booleans()) else ""
    return mark + gap() + written(document, 0) + gap()


toml_names = st.sampled_from(
    ["a", "b-c", "d.e", "mcp_servers", "ü", "x y", "#", 'q"', "[t]", "env"]
)
toml_scalars = (
    st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.text(st.sampled_from('ab#[]{}="\\,.\n\tü'), max_size=8)
)
entries = st.fixed_dictionaries(
    {"command": st.sampled_from(["npx", "a b", "# no", "[x]"])},
    optional={
        "args": st.lists(st.sampled_from(["-y", "]", "#", "a=b", '"'])),
        "enabled": st.booleans(),
        "env": st.dictionaries(
            toml_names, st.sampled_from(["", "v", "[mcp_servers.a]"]), max_size=2
        ),
    },
)


def toml_key(name: str) -> str:
    plain = all(c.isascii() and (c.isalnum() or c in "_-") for c in name)
    return name if plain and name else json.dumps(name, ensure_ascii=False)


@st.composite
def toml_texts(draw, servers, others) -> str:  # noqa: C901 - one writer, in the order of the text
    """Tables of servers between other tables, in any order, with comments, and in any spelling."""
    newline = draw(st.sampled_from(["\n", "\r\n"]))

    def remark() -> str:
        return f" # {draw(remarks)}" if draw(st.booleans()) else ""

    def lines_between() -> list[str]:
        return draw(
            st.lists(st.sampled_from(["", "  ", "# [mcp_servers.x]", '# k = "v"']), max_size=2)
        )

    def literal(value) -> str:
        if isinstance(value, list):
            if draw(st.booleans()):
                comma = f",{remark()}{newline}  "
                return "[" + newline + "  " + comma.join(map(literal, value)) + newline + "]"
            return "[" + ", ".join(map(literal, value)) + "]"
        if isinstance(value, dict):
            inner = ", ".join(f"{toml_key(k)} = {literal(v)}" for k, v in value.items())
            return "{" + inner + "}"
        if (
            isinstance(value, str)
            and draw(st.booleans())
            and "\\" not in value
            and '"' not in value
        ):
            return f'"""{newline}{value.replace(chr(10), newline)}"""'
        return json.dumps(value, ensure_ascii=False)

    def table(path: list[str], members: dict) -> list[str]:
        lines = [f"[{'.'.join(map(toml_key, path))}]{remark()}"]
        later: list[str] = []
        for key, value in members.items():
            if isinstance(value, dict) and draw(st.booleans()):
                later += [*lines_between(), *table([*path, key], value)]
            else:
                lines += [*lines_between(), f"{toml_key(key)} = {literal(value)}{remark()}"]
        return lines + later

    parts = [table(["mcp_servers", name], entry) for name, entry in servers.items()]
    parts += [table([name], members) for name, members in others.items()]
    lines = [f"top = {literal(draw(toml_scalars))}"] if draw(st.booleans()) else []
    for part in draw(st.permutations(parts)):
        lines += [*lines_between(), *part]
    lines += lines_between()
    end = newline if draw(st.booleans()) else ""
    return ("\ufeff" if draw(st.booleans()) else "") + newline.join(lines) + (end if lines else "")
