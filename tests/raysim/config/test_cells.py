"""Errors of code in the cells of a notebook; IPython takes the place of the main module, so it has a process here."""

import subprocess
import sys
from pathlib import Path

import pytest

CELLS = """
from IPython.core.interactiveshell import InteractiveShell

cells = [
    "import raysim; from algorithms import *; from tests.kit.runs import quick_run",
    '''
def training(model, batches, context):
    return {}["step"]
def composing(participation, local, server=Assign()) -> Algorithm:
    return {}["part"]
def returning(model, batches, context):
    return None
def shapeless(local): pass
''',
    '''
for number, tables in enumerate((
    {"local": {"update": training}},
    {"algorithm": {"name": composing}},
    {"local": {"update": returning}},
    {"algorithm": {"name": shapeless}},
)):
    try:
        quick_run(dict(rounds=1, data={"dataset": "digits"}, **tables), "run%d" % number, inline=True)
    except Exception as error:
        print(type(error).__name__, error)
''',
    '''
def failing(*_):
    raise OSError("of the machine")
def earlier():
    raise KeyError("of the cell")
failing.__code__ = failing.__code__.replace(co_filename="elsewhere.py")
import raysim.simulation.api
raysim.simulation.api.plan_run = failing
try:
    earlier()
except KeyError:
    try:
        raysim.run(dict(rounds=1, data={"dataset": "digits"}, local={"update": training}), "run9", inline=True)
    except Exception as error:
        print(type(error).__name__, error)
''',
]
for cell in cells:
    InteractiveShell.instance().run_cell(cell, store_history=True)
"""


def test_an_error_in_a_cell_is_one_line_that_names_the_cell(tmp_path: Path) -> None:
    pytest.importorskip("IPython")
    done = subprocess.run([sys.executable, "-c", CELLS], cwd=tmp_path, capture_output=True, text=True, check=True)
    trained, composed, returned, shapeless, faulty = done.stdout.splitlines()
    assert "OwnCodeError your own code raised KeyError: 'step' (Cell In[2], line 2, in training); see " in trained
    assert composed == (
        "InputError algorithm.name = '__main__:composing': must be composed, and raised KeyError: 'part' "
        "(Cell In[2], line 4, in composing)"
    )
    assert "and returns None (Cell In[2], line 5); correct it" in returned
    assert "and it has no participation (Cell In[2], line 7); change the function" in shapeless
    assert faulty == "OSError of the machine"
    log = (tmp_path / "run0" / "run.log").read_text()
    assert "__main__:training is not part of raysim: the code of this session runs here" in log
