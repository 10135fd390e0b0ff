"""A process of the server ends with its work, and never comes back into the supervisor's code."""

from __future__ import annotations

import os
import subprocess
import sys

SCRIPT = """
import os, sys
from noria.cli.child import run_child

def work():
    sys.stdout.write("words")  # which wait in a buffer for the end
    return {status}

words_reader, words_writer = os.pipe()
pid = os.fork()
if pid == 0:
    try:
        run_child("test", work, words_writer)
    finally:
        os._exit(99)
os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_its_status_is_that_of_its_work() -> None:
    run = subprocess.run([sys.executable, "-c", SCRIPT.format(status=3)], stdout=subprocess.PIPE, check=False)
    assert run.returncode == 3
    assert run.stdout == b"words"


def test_it_ends_even_if_nobody_reads_what_it_says() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}
    script = SCRIPT.format(status=3)
    run = subprocess.run([sys.executable, "-c", script], stdout=writer, env=environment, check=False)
    os.close(writer)
    assert run.returncode == 3
