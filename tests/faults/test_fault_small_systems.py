"""Small /dev/shm, no memfd, a full scratch disk, few descriptors, `ulimit -v`: it works, or says what to raise."""

import os
import platform
import resource
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from under_fire import numbered_files, output

MB = 1 << 20
# A mount namespace of its own, in which /dev/shm and the folder of temporary files have so many bytes
MOUNTED = (
    'mount -t tmpfs -o size="$0" pyloader_delta /dev/shm && mount -t tmpfs -o size="$1" pyloader_delta "$2" && '
    'shift 2 && exec "$@"'
)
# 800,000 rows of two columns of int64 are 12.8 MB; windows of a quarter are mixed; the sum tells whether all came
PASS = """
import numpy as np
class Numbered(DataReader):
    batch_size = 5000
    shuffle = True
    def read_file(self, path):
        first = int(Path(path).stem) * 50_000
        return {{"x": np.arange(first, first + 50_000), "y": np.arange(50_000)}}
    def count_samples(self, path):
        return 50_000
class AsNumbers(Dataset):
    input_format = "numpy"
    def batch_encode(self, batch_data):
        return batch_data
def epochs(**options):
    parts = Numbered(), AsNumbers(), NumpyDataCollator(), {root!r}
    kept = []
    with DataLoader(*parts, shuffle=True, shuffle_window=200_000, audit=True, num_epoch=2, **options) as loader:
        kept += loader
        assert loader.receipt().whole
    assert sum(int(batch["x"].sum()) for batch in kept) == 2 * 799_999 * 400_000
    print("all rows")
"""
# Of x86-64 and arm64: what Docker's and gVisor's sandboxes may do with memfd_create
NO_MEMFD = """
import ctypes
number = {{"x86_64": 319, "aarch64": 279}}[os.uname().machine]
class Filter(ctypes.Structure):
    _fields_ = [("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint)]
class Program(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.POINTER(Filter))]
steps = (Filter * 4)(
    Filter(0x20, 0, 0, 0), Filter(0x15, 0, 1, number),  # load the number of the call; is it this one?
    Filter(0x06, 0, 0, 0x00050000 | 38), Filter(0x06, 0, 0, 0x7FFF0000),  # ENOSYS; allow
)
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Program(4, steps))) == 0, os.strerror(ctypes.get_errno())
try:
    os.memfd_create("x")
except OSError as error:
    assert error.errno == 38
else:
    raise AssertionError("there is a memfd")
"""
TOLD = """
try:
    epochs({options})
except (MemoryError, ImportError) as error:  # or a library does not fit
    assert isinstance(error, BudgetError) or "ulimit -v" in str(error.__notes__), error
    print(type(error).__name__, error)
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return numbered_files(tmp_path_factory.mktemp("small") / "n", 16)


def ran(folder: Path, root: str, text: str, **options: Any) -> tuple[int, str, str]:
    path = folder / "program.py"
    path.write_text(text)
    return output(path, **options)


def source(root: str, rest: str, before: str = "") -> str:
    """Return a program: imports, what is taken from it, classes, what it does."""
    head = "import os\nfrom pathlib import Path\n"
    imports = "from pyloader_delta import BudgetError, DataLoader, DataReader, Dataset, NumpyDataCollator\n"
    return head + before.format() + imports + PASS.format(root=root) + rest


def can_mount() -> bool:
    if os.getuid() != 0 or shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "x", "/mnt"], capture_output=True).returncode == 0


mounts = pytest.mark.skipif(not can_mount(), reason="only root can give a program another /dev/shm (unshare -m)")
filters = pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="no number of memfd_create here")
PROCESSES = "num_workers=2, workers='process', memory_budget='64MiB'"


def mounted(folder: Path, shm: str, tmp: str) -> tuple[str, ...]:
    (folder / "tmp").mkdir(exist_ok=True)
    return ("unshare", "-m", "sh", "-c", MOUNTED, shm, tmp, str(folder / "tmp"))


@mounts
def test_a_small_or_full_dev_shm_is_not_used(tmp_path, root):
    text = source(root, f"epochs({PROCESSES})\nassert not os.listdir('/dev/shm')\n")
    assert ran(tmp_path, root, text, wrapper=mounted(tmp_path, "4k", "1m")) == (0, "all rows\n", "")


@mounts
@filters
@pytest.mark.parametrize(("shm", "tmp"), [("64m", "4k"), ("4k", "64m")])
def test_without_memfd_dev_shm_or_the_folder_of_temporary_files_is_used(tmp_path, root, shm, tmp):
    text = source(root, f"epochs({PROCESSES})\n", NO_MEMFD)
    wrapper = mounted(tmp_path, shm, tmp)
    assert ran(tmp_path, root, text, wrapper=wrapper) == (0, "all rows\n", "")


@mounts
@filters
def test_without_memfd_and_without_room_it_says_what_to_raise_and_no_process_is_killed(tmp_path, root):
    text = source(root, TOLD.format(options=PROCESSES), NO_MEMFD)
    code, out, err = ran(tmp_path, root, text, wrapper=mounted(tmp_path, "2m", "1m"))
    assert (code, err) == (0, "")
    assert out.startswith("BudgetError no ")
    assert "No space left on device" in out
    assert "docker run --shm-size=2g" in out
    assert "SIGBUS" not in out


@mounts
def test_a_scratch_disk_that_is_full_is_an_error_that_says_so(tmp_path, root):
    """That there is too little room is known before, where sizes are: tests/shuffling/test_full_shuffle.py."""
    rest = (
        "from pyloader_delta import ScratchError\n"
        "options = dict(num_workers=1, workers='process', scratch_dir=os.environ['TMPDIR'], shuffle='full')\n"
        f"with DataLoader(Numbered(), AsNumbers(), NumpyDataCollator(), {root!r}, **options) as loader:\n"
        "    for _ in range(2):\n"
        "        try:\n"
        "            print(len(list(loader)))\n"
        "        except ScratchError as error:\n"
        "            print(error)\n"
    )
    code, out, err = ran(tmp_path, root, source(root, rest), wrapper=mounted(tmp_path, "1m", "64k"))
    assert (code, err) == (0, ""), err
    assert out.count("shuffle='full' could not write to ") == 2
    assert out.count("No space left on device") == 2
    assert out.count("name another folder by scratch_dir") == 2


def limited(which: int, amount: int) -> dict[str, Any]:
    return {"preexec_fn": lambda: resource.setrlimit(which, (amount, amount))}


@pytest.mark.parametrize("kind", ["num_workers=2, workers='thread'", PROCESSES])
def test_256_descriptors_are_enough(tmp_path, root, kind):
    text = source(root, f"epochs({kind}, prefetch_factor=8)\n")
    assert ran(tmp_path, root, text, **limited(resource.RLIMIT_NOFILE, 256)) == (0, "all rows\n", "")


@pytest.mark.parametrize("n", [12, 24])
def test_too_few_descriptors_for_workers_say_what_to_raise(tmp_path, root, n):
    rest = f"try:\n    epochs({PROCESSES})\nexcept BudgetError as error:\n    print(error)\n"
    before = f"import resource\nLIMIT = {n}\n"
    start = "resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))\n"
    code, out, err = ran(tmp_path, root, source(root, start + rest, before))
    assert (code, err) == (0, "")
    assert out == "all rows\n" or "raise the limit on open files (`ulimit -n`)" in out


LITTLE = [
    ("num_workers=0", 4), ("num_workers=2, workers='thread'", 600), ("num_workers=2, workers='thread'", 4),
    (PROCESSES, 40),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "spare"), LITTLE)
def test_with_little_address_space_it_works_or_says_what_to_raise(tmp_path, root, kind, spare):
    """The limit is set when all is imported: what is left is for threads and data.

    Between too little for a thread and enough for all that it does, glibc itself may abort: no thread-local data.
    """
    start = (
        "import resource, pyarrow.compute\n"
        "now = int(Path('/proc/self/statm').read_text().split()[0]) * resource.getpagesize()\n"
        f"most = now + {spare * MB}\n"
        "resource.setrlimit(resource.RLIMIT_AS, (most, most))\n"
    )
    code, out, err = ran(tmp_path, root, source(root, start + TOLD.format(options=kind)))
    assert (code, err) == (0, ""), err
    assert out == "all rows\n" or spare < 600
