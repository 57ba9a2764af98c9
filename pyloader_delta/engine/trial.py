"""Something that may end its process is tried in a forked child first. Only for workers, which run one thread."""

from __future__ import annotations

import ctypes
import os
import signal
import warnings
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def deadly(do: Callable[[], object]) -> str | None:
    """Return how a child that does something ends ("was killed by SIGSEGV"); None where it comes to its end.

    An exception is no end of a process: the caller will see it when it does the same.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads: ours only waits for the parent
        pid = os.fork()
    if not pid:
        try:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            do()
        except BaseException:
            pass
        finally:
            os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if not code:
        return None
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
