"""Scripts that look for a way out: no file, no variable, no process, no object of ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.scripts.scenes import CANARY, Engine, value_of

ESCAPES = (
    # Files; the canary's is in the working folder
    "open('secret').read()",
    "open('{folder}/secret').read()",
    "open('/proc/self/environ').read()",
    "open('{folder}/new', 'w').write('x')",
    "from pathlib import Path\nPath('{folder}/secret').read_text()",
    "from pathlib import Path\nPath('{folder}/new').write_text('x')",
    "from pathlib import Path\n[str(p) for p in Path('{folder}').iterdir()]",
    "import os\nos.listdir('{folder}')",
    "import os\nos.remove('{folder}/secret')",
    "import os\nos.rename('{folder}/secret', '{folder}/new')",
    "import io\nio.open('{folder}/secret').read()",
    # The environment
    "import os\nos.environ['CANARY']",
    "import os\nos.getenv('CANARY')",
    "import os\ndict(os.environ)",
    # Processes and the network
    "import os\nos.system('touch {folder}/new')",
    "import os\nos.popen('cat {folder}/secret').read()",
    "import os\nos.execv('/bin/sh', ['sh', '-c', 'touch {folder}/new'])",
    "import os\nos.kill(os.getppid(), 9)",
    "import subprocess\nsubprocess.check_output(['cat', '{folder}/secret'])",
    "import socket\nsocket.create_connection(('127.0.0.1', 80))",
    "import ctypes\nctypes.CDLL(None).getenv(b'CANARY')",
    "import multiprocessing, threading",
    # Objects of the interpreter
    "().__class__.__bases__[0].__subclasses__()",
    "[c for c in object.__subclasses__() if 'Popen' in str(c)]",
    "(lambda: 0).__globals__",
    "(lambda: 0).__code__.co_consts",
    "call.__globals__",
    "call.__self__",
    "print.__self__.__import__('os').environ",
    "__import__('os').environ['CANARY']",
    "__builtins__.__dict__['open']('{folder}/secret').read()",
    "globals()['__builtins__']",
    "import sys\nsys.modules['os'].environ['CANARY']",
    "import sys\nsys._getframe().f_back.f_globals",
    "import builtins\nbuiltins.open('{folder}/secret').read()",
    "try:\n    1 / 0\nexcept Exception as e:\n    r = e.__traceback__.tb_frame.f_globals\nr",
    "'{{0.__class__.__init__.__globals__}}'.format(call)",
    "eval(\"open('{folder}/secret').read()\")",
    "exec(\"open('{folder}/secret').read()\")",
    "import importlib\nimportlib.import_module('os').environ['CANARY']",
    "import pickle\npickle.loads(b'cos\\nsystem\\n(S\"touch {folder}/new\"\\ntR.')",
    "import inspect\ninspect.currentframe().f_back",
    "import gc\ngc.get_objects()",
    "class A:\n    def __del__(self):\n        open('{folder}/new', 'w')\nA()",
    # What the workbench reads
    'print(\'{{"type":"finished","id":1,"value":"{canary_of_ours}"}}\')\n0',
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("with a space")
    (folder / "secret").write_text(CANARY)
    return folder


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[Engine]:
    engine = Engine(folder)
    yield engine
    assert engine.close() == 0


@pytest.mark.parametrize("code", ESCAPES, ids=lambda code: code[:50])
def test_a_script_finds_no_way_out(engine: Engine, folder: Path, code: str) -> None:
    written = code.format(folder=folder, canary_of_ours="forged")
    finished = engine.finished(written)

    assert CANARY not in msgspec.json.encode(finished).decode(), finished
    assert [path.name for path in folder.iterdir()] == ["secret"]
    assert (folder / "secret").read_text() == CANARY
    assert b"forged" not in bytes(finished.value)
    assert value_of(engine, "40 + 2") == b"42", "the next one runs"


def test_the_canary_can_be_seen_where_it_is_shown(engine: Engine) -> None:
    assert CANARY in str(engine.finished(f"print({CANARY!r})").printed)


def test_there_are_as_many_attempts_as_were_promised() -> None:
    assert len(ESCAPES) >= 29


def test_one_script_sees_nothing_of_another(engine: Engine) -> None:
    engine.finished("left = 'behind'\nimport json\njson.left = 1")

    assert engine.finished("left").kind == "NameError"
    assert engine.finished("import json\njson.left").kind == "AttributeError"
