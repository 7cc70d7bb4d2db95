"""The compiled core under AddressSanitizer and UBSan, fuzzed against the loops in Python.

Python's own allocator is switched off, so that each object is a block of its own: one byte read
behind a message set, or an object used after its end, ends the process with a report.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from soak import report, seed, times

pytestmark = pytest.mark.soak

ROOT = Path(__file__).parents[2]
SOURCE = (ROOT / "hermes" / "protocol" / "_core.c").read_text(encoding="utf-8")
FLAGS = [
    "-shared",
    "-fPIC",
    "-O1",
    "-g",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
]

#: What the sanitizers are there to find, each with a word of their report.
PLANTED = {
    "a wrong length is believed": (
        "size > (size_t)(end - position) - 4",
        "0",
        "AddressSanitizer",
    ),
    "a cut header is read": (
        "end - position < HEADER_BYTES",
        "end - position < HEADER_BYTES - 5",
        "AddressSanitizer",
    ),
    "a position before the data is read": ("position < 0 || end", "end", "overflow"),
    "a reference too many is given up": (
        "    Py_XDECREF(buffer);",
        "    Py_XDECREF(buffer); if (is_small) Py_XDECREF(buffer);",
        "heap-use-after-free",
    ),
    "a record's length is believed": ("*at >= end", "*at > end", "AddressSanitizer"),
    "a length in a request is believed": (
        "count < 0 || count > end - taken",
        "count < 0",
        "AddressSanitizer",
    ),
    "a number overflows": ("|| base.small > LLONG_MAX - data_bytes", "", "runtime error"),
}


def fuzz(directory: Path, source: str, count: int) -> subprocess.CompletedProcess[str]:
    """Build and fuzz in a process of its own."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    (directory / "_core.c").write_text(source, encoding="utf-8")
    build = directory / "_core.abi3.so"
    flags = [*FLAGS, "-DPy_LIMITED_API=0x030B0000", f"-I{sysconfig.get_path('include')}"]
    subprocess.run([compiler, *flags, directory / "_core.c", "-o", build], check=True)
    library = subprocess.run(
        [compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    program = ROOT / "tests" / "support" / "fuzzed_core.py"
    return subprocess.run(
        [sys.executable, program, build, str(seed()), str(count)],
        env=os.environ
        | {
            "LD_PRELOAD": library,
            "ASAN_OPTIONS": "detect_leaks=0",  # Python leaves much behind at its end
            "PYTHONMALLOC": "malloc",
            "HERMES_PURE": "1",
        },
        cwd=directory,
        capture_output=True,
        text=True,
    )


def test_the_sanitizers_find_nothing(tmp_path: Path) -> None:
    count = times(20_000)
    ended = fuzz(tmp_path, SOURCE, count)
    assert (ended.returncode, ended.stderr) == (0, "")
    report("sanitizers", sets=count, undamaged=int(ended.stdout))


@pytest.mark.parametrize("fault", PLANTED)
def test_the_sanitizers_find_what_is_planted(tmp_path: Path, fault: str) -> None:
    right, wrong, word = PLANTED[fault]
    assert SOURCE.count(right) == 1
    ended = fuzz(tmp_path, SOURCE.replace(right, wrong), 2_000)
    assert ended.returncode != 0
    assert word in ended.stderr
