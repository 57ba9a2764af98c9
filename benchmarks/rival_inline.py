"""torch's DataLoader over pyarrow without workers: all is done while the training loop waits, and nothing is sent."""

from functools import partial

from benchmarks import rival_torch

loader = partial(rival_torch.loader, num_workers=0)
