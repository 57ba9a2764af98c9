"""Programs beside the tests: Python on a script, a module or a text, run to its end, alone or several at once."""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT_S = 600  # for the busiest machine
QUIET = {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}


def python(
    *arguments: object, status: int | None = 0, env: Mapping[str, str] | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run Python in the repository's folder, with more environment; another exit code is a failure (None: any will do).

    A failure tells what was printed.
    """
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": ROOT, "timeout": TIMEOUT_S}
    done = subprocess.run(_command(arguments), env=os.environ | (env or {}), **(pipes | options))
    assert status in (done.returncode, None), f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def together(programs: Sequence[Sequence[object]], envs: Sequence[Mapping[str, str]]) -> list[str]:
    """Run several at once, each in an environment of its own; return what each printed."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "cwd": ROOT}
    running = [
        subprocess.Popen(_command(arguments), env=os.environ | env, **pipes)
        for arguments, env in zip(programs, envs, strict=True)
    ]
    try:
        texts = [process.communicate(timeout=TIMEOUT_S)[0] for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert [process.returncode for process in running] == [0] * len(running), "\n".join(texts)
    return texts


def free_ports(n: int) -> list[int]:
    """Return ports of this machine that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _command(arguments: Sequence[object]) -> list[str]:
    return [sys.executable, *map(str, arguments)]
