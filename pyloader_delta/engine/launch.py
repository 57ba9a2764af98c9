"""Worker processes started without running the main module again, and what is sent to them first."""

from __future__ import annotations

import importlib.machinery
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FunctionType
from typing import Any

import cloudpickle

from pyloader_delta.engine.channel import Channel
from pyloader_delta.errors import ConfigError

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_NO_GPU = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": ""}
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def pickled(stages: Any) -> bytes:
    """Return the user's objects for a worker; classes of a script, a notebook or a made-up module travel by value.

    Raises:
        ConfigError: They cannot be pickled; names the attribute and what to do.
    """
    with _by_value(_foreign_modules(stages)):
        try:
            return cloudpickle.dumps(stages)  # type: ignore[no-any-return]
        except Exception as error:
            raise ConfigError(_culprit(stages, error)) from error


def launch(start: bytes) -> tuple[subprocess.Popen[bytes], Channel]:
    """Start a worker. It dies with the thread that calls this, as the kernel's parent-death signal has it."""
    ours, theirs = socket.socketpair()
    path = [os.path.abspath(entry) if entry == "" else entry for entry in sys.path if isinstance(entry, str)]
    code = (  # first of all it is to die with us: one that is stopped while it imports could not see to it
        f"import ctypes; ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, {signal.SIGKILL:d}); "
        f"import sys; sys.path[:] = {path!r}; from pyloader_delta.engine.worker import main; "
        f"main({theirs.fileno()}, {os.getpid()})"
    )
    command = [sys.executable, *subprocess._args_from_interpreter_flags(), "-P", "-c", code]  # type: ignore[attr-defined]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            env=os.environ | _NO_GPU | {name: os.environ.get(name, "1") for name in _ONE_THREAD},
            process_group=0,  # Ctrl-C in a terminal reaches the parent alone, which ends its workers
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    channel = Channel(ours)
    with suppress(OSError):  # it died at once; the caller sees the end of the channel
        channel.send((start, path, os.getcwd()))
    return process, channel


def ending(process: subprocess.Popen[bytes]) -> str:
    """Return how a worker ended, in words."""
    code = process.returncode
    if code is None:
        return "closed its channel"
    if code < 0:
        try:
            return f"was ended by signal {signal.Signals(-code).name}"
        except ValueError:
            return f"was ended by signal {-code}"
    return f"ended with exit code {code}"


def _culprit(stages: Any, error: Exception) -> str:
    advice = "make it in open(), which runs in each worker, or use workers='thread'"
    for owner in vars(stages).values():
        for name, value in getattr(owner, "__dict__", {}).items():
            try:
                cloudpickle.dumps(value)
            except Exception as own:
                return f"{type(owner).__name__}.{name} cannot be sent to worker processes ({own}): {advice}"
        try:
            cloudpickle.dumps(owner)
        except Exception as own:
            return f"{type(owner).__name__} cannot be sent to worker processes ({own}): {advice}"
    return f"the reader, dataset or collator cannot be sent to worker processes ({error}): {advice}"


def _foreign_modules(stages: Any) -> list[Any]:
    """Return the modules that a worker could not import, or would import from another file.

    They are those of the objects' classes and of their attributes, of the values in a list, tuple or dict too.
    """
    owners = list(vars(stages).values())
    held = [value for owner in owners for value in getattr(owner, "__dict__", {}).values()]
    held += [part for value in held for part in _parts(value)]
    functions = [value for value in held if isinstance(value, FunctionType)]
    kinds = {value if isinstance(value, type) else type(value) for value in owners + held}
    names = {kind.__module__ for found in kinds for kind in found.__mro__} | {f.__module__ for f in functions}
    modules = [sys.modules[name] for name in sorted(names - {"__main__", "builtins", None}) if name in sys.modules]
    return [module for module in modules if not _importable(module)]


def _importable(module: Any) -> bool:
    top = module.__name__.partition(".")[0]
    if top in sys.builtin_module_names or top in sys.stdlib_module_names:
        return True
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec: importlib.machinery.ModuleSpec | None = find(top, None) if find is not None else None
        if spec is not None:
            origin, loaded = spec.origin, getattr(sys.modules.get(top), "__file__", None)
            return origin is None or loaded is None or _same_file(origin, loaded)
    return False


def _same_file(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:  # inside an archive, frozen, or gone since
        return os.path.abspath(one) == os.path.abspath(other)


def _parts(value: Any) -> Iterable[Any]:
    """Return one value of each type that a container holds: there may be millions."""
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, (list, tuple)):
        return ()
    alike = dict(zip(map(type, value), value, strict=True))
    return [v for v in value if isinstance(v, (type, FunctionType))] if _NAMED & alike.keys() else alike.values()


_NAMED = {type, FunctionType}


@contextmanager
def _by_value(modules: list[Any]) -> Iterator[None]:
    known = set(cloudpickle.list_registry_pickle_by_value())
    added = [module for module in modules if module.__name__ not in known]
    for module in added:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in added:
            cloudpickle.unregister_pickle_by_value(module)
