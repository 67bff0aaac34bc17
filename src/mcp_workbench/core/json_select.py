"""JMESPath expressions of other programs, evaluated in a bounded number of steps.

The parser and the functions are those of `jmespath`; each visit of a node is counted, and so is the size of whatever is
copied, compared or written, before that happens. An expression can make values that refer to one value many times
(`[@, @] | [@, @] | …`): their size is that of the written text.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false

import warnings
from math import prod
from typing import Any, cast

import msgspec
from jmespath.exceptions import JMESPathError, JMESPathTypeError
from jmespath.functions import Functions
from jmespath.parser import Parser
from jmespath.visitor import TreeInterpreter

from mcp_workbench.core.raw_json import Steps

LONGEST_EXPRESSION = 2000  # characters
LONGEST_REASON = 300  # characters of what the parser or a function says
DEEPEST = 100  # nodes in nodes, as in `a | b | c`, and signs that begin one
CHARACTERS_PER_STEP = 64  # of strings that are copied or compared
BITS_PER_STEP = 64  # of a number that is written
_TOO_DEEP = "the expression is nested too deeply"
_NUMBERS = (int, float)
# Functions that look at the elements of their arguments, but not into them.
_ABOUT_LISTS = {"length", "map", "max_by", "min_by", "reverse", "sort_by", "to_array"}
_SHALLOW = {*_ABOUT_LISTS, "keys", "merge", "not_null", "type", "values"}


class SelectError(ValueError):
    """The expression can't be used, or not with this value; the text says why."""


class Selection:
    """A JMESPath expression. Raises SelectError if it is none."""

    def __init__(self, expression: str) -> None:
        if len(expression) > LONGEST_EXPRESSION:
            raise SelectError(f"the expression is longer than {LONGEST_EXPRESSION} characters")
        if any(expression.count(sign) > DEEPEST for sign in "([{!&"):
            raise SelectError(_TOO_DEEP)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about a literal without quotes, which it takes
                self._tree: Any = Parser().parse(expression).parsed
            _check(self._tree)
        except (JMESPathError, ValueError) as error:
            raise SelectError(_shortened(error)) from None
        except RecursionError:  # pragma: no cover - depends on how deep we are already
            raise SelectError(_TOO_DEEP) from None

    def of(self, value: Any, steps: Steps) -> Any:
        """Return what it selects of a JSON value. Raises SelectError, or TooComplex."""
        interpreter = _Interpreter(steps)
        try:
            selected = interpreter.visit(self._tree, value)
            interpreter.weigh(selected)
        except JMESPathTypeError as error:  # its own text has the whole value
            expected = " or ".join(error.expected_types)
            reason = f"{error.function_name}() takes {expected}, not {error.actual_type}"
            raise SelectError(reason) from None
        except (JMESPathError, ValueError, TypeError, ArithmeticError) as error:
            raise SelectError(_shortened(error)) from None
        except RecursionError:  # pragma: no cover - a deep value, and it depends on the Python
            raise SelectError("the value is nested too deeply") from None
        return selected


def written(value: Any) -> str:
    """A selected value as text: a string as it is, anything else as JSON. Raises SelectError."""
    try:
        return value if isinstance(value, str) else msgspec.json.encode(value).decode()
    except (ValueError, RecursionError) as error:  # a number of thousands of digits
        raise SelectError(_shortened(error)) from None


def _check(tree: Any) -> None:
    """Raise SelectError for an unknown function or deep nesting: evaluation would be too late."""
    waiting: list[tuple[Any, int]] = [(tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        if depth > DEEPEST:
            raise SelectError(_TOO_DEEP)
        if not isinstance(node, dict):  # a number of a slice
            continue
        name = cast("Any", node["value"]) if node["type"] == "function_expression" else "type"
        if name not in Functions.FUNCTION_TABLE:
            known = ", ".join(sorted(Functions.FUNCTION_TABLE))
            raise SelectError(f"there is no function {name}(); there are {known}")
        waiting += [(child, depth + 1) for child in cast("Any", node["children"])]


class _Interpreter(TreeInterpreter):
    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self._left = steps
        self._call = Functions().call_function

    def visit(self, node: Any, *args: Any, **kwargs: Any) -> Any:
        self._left.take()
        return super().visit(node, *args, **kwargs)

    def weigh(self, value: Any) -> None:
        """Take a step for each value in this one, and for the length of its strings."""
        waiting = [value]
        while waiting:
            one = waiting.pop()
            self._left.take()
            if isinstance(one, dict):
                members = cast("dict[str, Any]", one)
                waiting += members.values()
                self._left.take(sum(map(len, members)) // CHARACTERS_PER_STEP)
            elif isinstance(one, list):
                self._left.take(len(cast("list[Any]", one)) // 4)  # before they are copied
                waiting += one
            elif isinstance(one, str):
                self._left.take(len(one) // CHARACTERS_PER_STEP)
            elif isinstance(one, int):  # a boolean as well
                self._left.take(one.bit_length() // BITS_PER_STEP)
            elif one is not None and not isinstance(one, float):
                raise SelectError("the expression gives no JSON value")

    def visit_flatten(self, node: Any, value: Any) -> Any:
        base = self.visit(node["children"][0], value)
        if not isinstance(base, list):
            return None
        merged: list[Any] = []
        for element in cast("list[Any]", base):
            if isinstance(element, list):
                self._left.take(1 + len(element) // 4)
                merged += element
            else:
                self._left.take()
                merged.append(element)
        return merged

    def visit_slice(self, node: Any, value: Any) -> Any:
        if isinstance(value, list):
            self._left.take(len(cast("list[Any]", value)) // 4)
        return super().visit_slice(node, value)

    def visit_comparator(self, node: Any, value: Any) -> Any:
        left, right = (self.visit(child, value) for child in node["children"])
        kind = node["value"]
        if kind in ("eq", "ne"):
            self.weigh(left)
            self.weigh(right)
        elif _order(left) is None or _order(left) is not _order(right):
            return None  # only numbers have an order, and strings
        return self.COMPARATOR_FUNC[kind](left, right)

    def visit_function_expression(self, node: Any, value: Any) -> Any:
        name = node["value"]
        arguments = [self.visit(child, value) for child in node["children"]]
        for argument in arguments:
            if isinstance(argument, (list, dict, str)):
                self._left.take(len(argument) // 4)
            if name not in _SHALLOW and isinstance(argument, (list, dict, str, int)):
                self.weigh(argument)
        if name == "join":  # the separator is copied for each string
            lengths = [len(one) for one in arguments if isinstance(one, (str, list))]
            self._left.take(prod(lengths) // CHARACTERS_PER_STEP)
        return self._call(name, arguments)


def _order(value: Any) -> type | None:
    if isinstance(value, str):
        return str
    return float if isinstance(value, _NUMBERS) and not isinstance(value, bool) else None


def _shortened(error: Exception) -> str:
    reason = str(error)
    return reason if len(reason) <= LONGEST_REASON else f"{reason[:LONGEST_REASON]}…"
