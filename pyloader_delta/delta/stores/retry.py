"""What is tried again and how long: errors that pass are, with growing pauses; those that stay are raised at once."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

_FIRST_PAUSE_S = 0.1
_MAX_PAUSE_S = 5.0
_ATTEMPTS_A_STALL = 3  # a connection that is dead gets a new one before all of the time is over


class PassingError(OSError):
    """A failure that may pass: too many requests, a server's fault, a connection lost, a body cut, no answer."""


class ExhaustedError(OSError):
    """Every attempt failed, each with something that might have passed."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long one request is repeated."""

    stall_timeout_s: float
    """Seconds without progress, over all attempts and the pauses between them."""
    max_retries: int = 10

    @property
    def attempt_s(self) -> float:
        """Seconds without a byte after which one attempt ends."""
        return self.stall_timeout_s / _ATTEMPTS_A_STALL

    def retried(self, attempt: Callable[[], T], what: str) -> T:
        """Return what an attempt gives, each from its start.

        Args:
            attempt: Raises PassingError for what may pass.
            what: What is asked for, for errors.

        Raises:
            TimeoutError: No answer came in time.
            ExhaustedError: All attempts failed.
            OSError: An attempt's own error.
        """
        lost_s = 0.0
        # random's own generator is the user's: it is neither read nor changed
        jitter = random.Random()
        for n_failed in range(1, self.max_retries + 2):
            start = time.monotonic()
            try:
                return attempt()
            except PassingError as error:
                reason = str(error)
                took_s = time.monotonic() - start
            # An attempt that failed quickly cost nothing; one that waited in vain lost at most its limit.
            stalled = took_s >= 0.9 * self.attempt_s
            pause_s = min(_MAX_PAUSE_S, _FIRST_PAUSE_S * 2 ** (n_failed - 1)) * jitter.uniform(0.5, 1.0)
            lost_s += min(took_s, self.attempt_s) if stalled else 0.0
            if lost_s + pause_s >= self.stall_timeout_s or n_failed > self.max_retries:
                break
            time.sleep(pause_s)
            lost_s += pause_s
        tried = f"{what}: tried {n_failed} times"
        if stalled:
            raise TimeoutError(f"{tried}, no answer within stall_timeout={self.stall_timeout_s:g} s: {reason}")
        raise ExhaustedError(f"{tried}, the last time: {reason}")
