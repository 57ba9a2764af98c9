"""The main process is killed, or its terminal closed: workers and temporary files are gone, and a restart works."""

import os
import signal
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from fakes import number_files
from leaks import until
from under_fire import FOREVER, nothing_left, output, program, run

PROCESSES = {"num_workers": 2, "workers": "process"}


@pytest.fixture
def root(tmp_path):
    return number_files(tmp_path / "numbers", [3, 4, 5, 6])


def children(process: int, n: int) -> list[psutil.Process]:
    assert until(lambda: len(psutil.Process(process).children(recursive=True)) == n, 60)
    return psutil.Process(process).children(recursive=True)


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_workers_end_with_it_and_a_restart_works(tmp_path, root, sent):
    path = program(tmp_path, root, FOREVER, **PROCESSES)
    with run(path) as process:
        assert process.stdout.readline() == "ready\n"
        workers = children(process.pid, 2)
        process.send_signal(sent)
        _, err = process.communicate(timeout=600)
    assert process.returncode == -sent
    assert err == ""
    assert nothing_left(process.pid, workers, tmp_path)
    if sent == signal.SIGKILL:
        assert output(program(tmp_path, root, "", **PROCESSES)) == (0, "ready\n", "")


def test_its_terminal_is_closed(tmp_path, root):
    ours, theirs = os.openpty()
    path = program(
        tmp_path, root, FOREVER, before="import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)", **PROCESSES
    )
    options = {"stdin": theirs, "process_group": None, "start_new_session": True}
    with run(path, **options) as process:
        os.close(theirs)
        assert process.stdout.readline() == "ready\n"
        workers = children(process.pid, 2)
        os.close(ours)
        process.communicate(timeout=600)
    assert process.returncode == -signal.SIGHUP
    assert nothing_left(process.pid, workers, tmp_path)


def open_files(process: int) -> list[str]:
    folder, found = Path(f"/proc/{process}/fd"), []
    for name in os.listdir(folder):
        with suppress(FileNotFoundError):  # closed meanwhile
            found.append(os.readlink(folder / name))
    return found


def test_in_a_full_shuffle_which_has_a_file_on_disk(tmp_path, root):
    with run(program(tmp_path, root, FOREVER, shuffle="full", **PROCESSES)) as process:
        assert process.stdout.readline() == "ready\n"
        workers = children(process.pid, 2)
        assert until(lambda: any(str(tmp_path / "tmp") in path for path in open_files(process.pid)), 60)
        process.kill()
        process.communicate(timeout=600)
    assert nothing_left(process.pid, workers, tmp_path)


def test_while_workers_start(tmp_path, root):
    """They are not listening yet for what becomes of it."""
    before = (
        "import subprocess, signal\n"
        "start = subprocess.Popen\n"
        "def killed(*arguments, **options):\n"
        "    process = start(*arguments, **options)\n"
        "    print(process.pid, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "subprocess.Popen = killed\n"
    )
    with run(program(tmp_path, root, FOREVER, before=before, **PROCESSES)) as process:
        out, err = process.communicate(timeout=600)
    worker = int(out)
    assert (process.returncode, err) == (-signal.SIGKILL, "")
    assert until(lambda: not psutil.pid_exists(worker))
    assert nothing_left(process.pid, [], tmp_path)


def test_while_its_workers_are_stopped(tmp_path, root):
    with run(program(tmp_path, root, FOREVER, **PROCESSES)) as process:
        assert process.stdout.readline() == "ready\n"
        workers = children(process.pid, 2)
        for worker in workers:
            worker.suspend()
        process.kill()
        process.communicate(timeout=600)
    assert nothing_left(process.pid, workers, tmp_path)


def test_while_a_forked_child_of_it_lives_on(tmp_path, root):
    """It holds copies of all descriptors: the end of a channel alone would not tell."""
    fork = "import signal\nif not os.fork():\n    signal.pause()\n"
    path = program(tmp_path, root, FOREVER, num_workers=1, workers="process")
    path.write_text(path.read_text().replace("print(", fork + "print(", 1))
    with run(path) as process:
        assert process.stdout.readline() == "ready\n"
        found = children(process.pid, 2)
        workers = [child for child in found if "-c" in child.cmdline()]
        assert len(workers) == 1
        process.kill()
        process.wait(600)
        try:
            assert until(lambda: not any(worker.is_running() for worker in workers))
        finally:
            for child in found:
                if child not in workers:
                    child.kill()
