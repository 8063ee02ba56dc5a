"""Ctrl-C while a command imports its modules."""

import signal
import subprocess
import sys

PROGRAM = """
import os, signal, sys
from raysim import __main__

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "raysim.cli.commands":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
__main__.main()
"""


def test_ctrl_c_during_imports_leaves_no_traceback() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")
