"""CSV files of a report: texts that begin like a formula stay texts in a spreadsheet, and numbers stay numbers."""

import json
import shutil
import subprocess
from importlib.resources import files

import pytest

SCRIPT = files("raysim.report").joinpath("report.js").read_text(encoding="utf-8")
NODE = shutil.which("node")


def cells(values: list[str]) -> list[str]:
    """Return the cells that the script of a page writes."""
    assert NODE
    begin = SCRIPT.index("const cell = ")
    function = SCRIPT[begin : SCRIPT.index("\n  };", begin)] + "\n};"
    code = f"{function}\nconsole.log(JSON.stringify({json.dumps(values)}.map(cell)));"
    done = subprocess.run([NODE, "-e", code], capture_output=True, text=True, check=True)
    return [str(each) for each in json.loads(done.stdout)]


@pytest.mark.skipif(NODE is None, reason="needs node")
def test_a_spreadsheet_calculates_no_text() -> None:
    formulas = ["=1+1", "@SUM(1)", "+1+cmd|' /C calc'!A0", "-1+cmd|' /C calc'!A0", "-2+3", "--x", " =1", "\t=1"]
    assert cells(formulas) == [f"'{formula}" for formula in formulas]
    plain = ["-0.5", "+1", "-1e-05", "1", "a-b", ""]
    assert cells(plain) == plain
