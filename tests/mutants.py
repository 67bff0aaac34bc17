"""Mutation sample: change one line of the program at random, and see whether the suite notices.

    python -m tests.mutants [--sample 56] [--seed 20261115] [--skip 0] [--minutes 90] [--at-once 6]
                            [--package core] [--near]

Each mutant lives in a copy of the project with an environment of its own. The tests that import the
changed module run first. After `make coverage` it is known which others run the line: they follow, and
no others have to. Where that is not known (the line runs while modules are imported, or in a process
that is killed), those that start no process follow, then those of the module's package, then all.
The first failure ends the run. Replicas have to pass the short form of `make cluster` as well. Each
is printed with the test that noticed it. One that none has noticed is a missing test, or a line that
does nothing. With `--near` only tests of the package are tried, which takes seconds: what survives
then may be noticed by others.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from coverage import CoverageData

ROOT = Path(__file__).parents[1]
DATA = ROOT / ".coverage"
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
SOURCE = Path("src") / "mcp_workbench"
QUICK = [
    "tests/core",
    "tests/transport",
    "tests/protocol",
    "tests/schema",
    "tests/config",
    "tests/server",
]
CLUSTER = [
    "-m",
    "peers",
    "--workers=2",
    "tests/cluster",
]  # with a real engine and a balancer
SHORT = {"CALLS": "500", "AWAY": "5"}  # how much of it
PASSED = (0, 5)  # exit statuses of pytest: all have, or there was none to run
ONE_RUN = 900.0  # seconds for one run of tests; a mutant that takes longer has been noticed
COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "!=", ast.NotEq: "==", ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
ARITHMETIC: dict[type[ast.operator], str] = {ast.Add: "-", ast.Sub: "+", ast.Mult: "+"}


class Mutant(NamedTuple):
    """A piece of one line, and what stands there instead."""

    file: Path  # below the project
    line: int
    start: int  # in bytes of UTF-8, as `ast` counts
    end: int
    text: str

    def apply(self, source: bytes) -> bytes:
        lines = source.splitlines(keepends=True)
        line = lines[self.line - 1]
        lines[self.line - 1] = line[: self.start] + self.text.encode() + line[self.end :]
        return b"".join(lines)

    def __str__(self) -> str:
        before = (ROOT / self.file).read_bytes()
        old, new = (
            text.splitlines()[self.line - 1].decode().strip()
            for text in (before, self.apply(before))
        )
        return f"{self.file}:{self.line}\n    - {old}\n    + {new}"


class _Finder(ast.NodeVisitor):
    """Collects what can be changed in one file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.mutants: list[Mutant] = []

    def _replace(self, node: ast.expr | ast.stmt, text: str) -> None:
        if node.end_lineno == node.lineno and node.end_col_offset is not None:
            place = (node.lineno, node.col_offset, node.end_col_offset)
            self.mutants.append(Mutant(self._file, *place, text))

    def _between(self, left: ast.expr, right: ast.expr, text: str) -> None:
        """Replace the operator between two operands."""
        if left.end_lineno == right.lineno and left.end_col_offset is not None:
            place = (right.lineno, left.end_col_offset, right.col_offset)
            self.mutants.append(Mutant(self._file, *place, f" {text} "))

    def visit_Compare(self, node: ast.Compare) -> None:
        operator = COMPARISONS.get(type(node.ops[0]))
        # Parentheses around an operand would be lost with the space between.
        bare = not isinstance(node.left, ast.BoolOp | ast.IfExp | ast.NamedExpr)
        if len(node.ops) == 1 and operator and bare:
            self._between(node.left, node.comparators[0], operator)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        text = "or" if isinstance(node.op, ast.And) else "and"
        left, right = node.values[0], node.values[1]
        if len(node.values) == 2 and not isinstance(left, ast.NamedExpr):
            self._between(left, right, text)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in ARITHMETIC and not isinstance(node.left, ast.BinOp):
            self._between(node.left, node.right, ARITHMETIC[type(node.op)])
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) == "TYPE_CHECKING":
            return
        self._replace(node.test, f"not ({ast.unparse(node.test)})")
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not isinstance(node.value, ast.Constant):
            self._replace(node.value, "None")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call) and not ast.unparse(node).startswith("log."):
            self._replace(node, "pass")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace(node, str(not node.value))
        elif isinstance(node.value, int):
            self._replace(node, str(node.value + 1))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_arguments(self, node: ast.arguments) -> None:
        for default in (*node.defaults, *filter(None, node.kw_defaults)):
            self.visit(default)


def mutants(file: Path) -> list[Mutant]:
    """All that could be changed in a file of the project; what comes out need not be Python."""
    finder = _Finder(file)
    finder.visit(ast.parse((ROOT / file).read_bytes()))
    return finder.mutants


def _is_change(mutant: Mutant) -> bool:
    """Is it Python, and not the same as before?"""
    source = (ROOT / mutant.file).read_bytes()
    try:
        return ast.dump(ast.parse(mutant.apply(source))) != ast.dump(ast.parse(source))
    except SyntaxError:
        return False


def sample(count: int, seed: int, package: str = "") -> list[Mutant]:
    """So many, drawn from all lines alike: one of each line that was drawn.

    Whether a line is drawn depends on its file and its text alone: a change elsewhere leaves the others.
    """
    files = [path.relative_to(ROOT) for path in sorted((ROOT / SOURCE / package).rglob("*.py"))]
    drawn: list[tuple[float, Mutant]] = []
    for file in files:
        if not file.is_relative_to(SOURCE / "demo"):
            drawn += _drawn(file, seed)
    drawn.sort(key=lambda one: one[0])
    return list(islice(filter(_is_change, (mutant for _, mutant in drawn)), count))


def _drawn(file: Path, seed: int) -> Iterator[tuple[float, Mutant]]:
    """One change of each line of a file, with the line's place in the draw."""
    texts = (ROOT / file).read_bytes().splitlines()
    lines: dict[int, list[Mutant]] = {}
    for mutant in mutants(file):
        lines.setdefault(mutant.line, []).append(mutant)
    seen: Counter[bytes] = Counter()
    for line, found in sorted(lines.items()):
        text = texts[line - 1].strip()
        seen[text] += 1  # equal lines are told apart by their order
        chance = random.Random(f"{seed} {file} {seen[text]} {text.decode()}")
        yield chance.random(), chance.choice(found)


def _of_cluster(mutant: Mutant) -> bool:
    return mutant.file.is_relative_to(SOURCE / "cluster")


# Which tests run a line


@cache
def _recorded() -> CoverageData | None:
    """What `make coverage` has left: lines by the test files that ran them."""
    if not DATA.exists():
        return None
    data = CoverageData(str(DATA))
    data.read()
    return data


def _statement(mutant: Mutant) -> ast.stmt | None:
    """The innermost statement with the change, if that runs when a function is called."""
    tree = ast.parse((ROOT / mutant.file).read_bytes())
    bodies = (node.body for node in ast.walk(tree) if isinstance(node, _FUNCTIONS))
    around = [
        inner
        for body in bodies
        for outer in body
        for inner in ast.walk(outer)
        if isinstance(inner, ast.stmt) and inner.lineno <= mutant.line <= _end(inner)
    ]
    return max(around, key=lambda statement: statement.lineno, default=None)


def _end(statement: ast.stmt) -> int:
    return statement.end_lineno or statement.lineno


def covering(mutant: Mutant) -> list[str]:
    """The test files that run the line, or nothing where that is not known."""
    file, data = ROOT / mutant.file, _recorded()
    if data is None or file.stat().st_mtime > DATA.stat().st_mtime:
        return []
    statement = _statement(mutant)
    by_line = data.contexts_by_lineno(str(file))
    found = by_line.get(statement.lineno, []) if statement else []
    return sorted(name for name in set(found) if name and (ROOT / name).exists())


class Copy:
    """The project in a folder of its own, whose programs import from there and nowhere else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        tracked = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
        ).stdout
        for name in tracked.decode().split("\0"):
            if name and (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
        venv.create(folder / ".venv", with_pip=False, symlinks=True)
        [site] = (folder / ".venv").glob("lib/python*/site-packages")
        ours = sysconfig.get_path("purelib")
        (site / "copy.pth").write_text(f"{folder / 'src'}\n{ours}\n")
        self._add_commands(Path(sysconfig.get_path("scripts")), folder / ".venv" / "bin")

    def _add_commands(self, ours: Path, theirs: Path) -> None:
        """The commands of our environment, which start its Python; there they start that of the copy."""
        before, after = (os.fsencode(bin / "python") for bin in (ours, theirs))
        for path in ours.iterdir():
            copy = theirs / path.name
            if path.is_file() and not copy.exists() and not path.name.startswith("python"):
                copy.write_bytes(path.read_bytes().replace(b"#!" + before, b"#!" + after, 1))
                copy.chmod(path.stat().st_mode)

    def noticed_by(self, tests: list[str], at_once: int) -> str:
        """The test that fails first, or nothing."""
        argv = [str(self.folder / ".venv" / "bin" / "python"), "-m", "pytest", "-x", "-q", "-rfE"]
        argv += ["--workers", str(at_once), "-p", "no:cacheprovider", *tests]
        with tempfile.TemporaryFile() as output:
            run = subprocess.Popen(
                argv,
                cwd=self.folder,
                env=os.environ | SHORT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # a mutant that hangs is ended with all its workers
            )
            try:
                if run.wait(ONE_RUN) in PASSED:
                    return ""
            except subprocess.TimeoutExpired:
                return f"nothing ended within {ONE_RUN:g} s"
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(run.pid, signal.SIGKILL)
                run.wait()
                self._end_left()
            output.seek(0)
            lines = output.read().decode(errors="replace").splitlines()
        failed = [line for line in lines if line.startswith(("FAILED tests/", "ERROR tests/"))]
        # Without a test, whoever reads this wants to know more.
        told = failed[0].partition(" - ")[0] if failed else "\n".join(lines[-40:])
        return told or f"it ended with status {run.returncode}"

    def _end_left(self) -> None:
        """End what a mutant has left running in a session of its own, as Linux lists it."""
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):  # it has just ended
                if os.fsencode(self.folder) + b"/" in path.read_bytes():
                    os.kill(int(path.parent.name), signal.SIGKILL)

    def noticed(self, mutant: Mutant, at_once: int, *, near: bool) -> str:
        """The same for a change; it is undone afterwards."""
        path = self.folder / mutant.file
        source = path.read_bytes()
        try:
            path.write_bytes(mutant.apply(source))
            by = (
                self.noticed_by(tests, at_once)
                for tests in self._stages(mutant, near=near)
                if tests
            )
            return next(filter(None, by), "")
        finally:
            path.write_bytes(source)

    def _stages(self, mutant: Mutant, *, near: bool) -> Iterator[list[str]]:
        module = ".".join(mutant.file.with_suffix("").parts[1:])
        about = [
            str(path.relative_to(self.folder))
            for path in sorted((self.folder / "tests").rglob("test_*.py"))
            if f"from {module} import" in path.read_text("utf-8") and "peers" not in path.parts
        ]
        yield about
        if not near and (known := covering(mutant)):
            yield [name for name in known if name not in about]
            if _of_cluster(mutant):
                yield CLUSTER
            return
        if not near:
            yield QUICK
        folder = f"tests/{mutant.file.parts[2]}"  # of the same name as the package
        if (near or folder not in QUICK) and (self.folder / folder).is_dir():
            yield [folder]
        if near:
            return
        if _of_cluster(mutant):
            yield CLUSTER
        yield ["tests"]


def _all_tests(drawn: list[Mutant], *, near: bool) -> Iterator[list[str]]:
    """Those that have to pass without a change."""
    packages = {mutant.file.parts[2] for mutant in drawn}
    if near and len(packages) == 1:
        yield [f"tests/{packages.pop()}"]
        return
    yield ["tests"]
    if any(map(_of_cluster, drawn)) and not near:
        yield CLUSTER


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--sample", type=int, default=56, help="mutants to try")
    parser.add_argument("--seed", type=int, default=20261115)
    parser.add_argument("--skip", type=int, default=0, help="the first ones, tried before")
    parser.add_argument("--minutes", type=float, default=90.0, help="stop after so long")
    parser.add_argument("--at-once", type=int, default=6, help="tests that run at a time")
    parser.add_argument("--package", default="", help="change only files of this package")
    parser.add_argument("--near", action="store_true", help="try only the tests of the package")
    wanted = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # nothing is left of it then
    until = time.monotonic() + wanted.minutes * 60
    killed = tried = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Copy(Path(folder))
        drawn = sample(wanted.sample, wanted.seed, wanted.package)[wanted.skip :]
        for tests in _all_tests(drawn, near=wanted.near):
            if failed := copy.noticed_by(tests, wanted.at_once):
                print(f"The suite fails without a change, so it would notice all: {failed}")
                return 1
        shown = [str(mutant) for mutant in drawn]  # now: somebody may go on working on the files
        for mutant, change in zip(drawn, shown, strict=True):
            if time.monotonic() > until:
                break
            tried += 1
            began = time.monotonic()
            by = copy.noticed(mutant, wanted.at_once, near=wanted.near)
            killed += bool(by)
            took = f"{time.monotonic() - began:.0f} s"
            print(
                f"{wanted.skip + tried}/{wanted.sample} {took} {by or 'SURVIVED'}\n    {change}",
                flush=True,
            )
    print(f"\n{killed} of {tried} mutants were killed (of {wanted.sample} drawn)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
