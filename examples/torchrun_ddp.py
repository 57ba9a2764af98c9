"""Distributed training by torchrun: equal shares of a table for each process, and going on where training broke off.

    torchrun --nproc-per-node 3 examples/torchrun_ddp.py --checkpoint digits.pt

Run it again after it was stopped, with any number of processes: the rest of the epoch follows, each row once.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `torchrun examples/torchrun_ddp.py`

from examples import tables
from pyloader_delta import DataLoader, FieldSpec


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--folder", default=tables.FOLDER, help="where the table is kept (default: %(default)s)")
    parser.add_argument("--checkpoint", type=Path, help="go on from this file if it is there, and write it")
    parser.add_argument("--stop-after", type=int, help="end after so many steps, as if the machine were taken away")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    if dist.get_rank() == 0:
        tables.digits(options.folder)  # written once
    dist.barrier()
    train(tables.digits(options.folder), options)
    dist.destroy_process_group()


def train(table: str, options: argparse.Namespace) -> None:
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    image = FieldSpec("image", decode_numpy_and_apply_shape=(8, 8))
    # Rank and number of ranks are found by the loader itself, when a loop begins.
    with DataLoader.from_delta(
        table, 32, fields=[image, "label"], filter="split = 'train'", shuffle=True, num_epoch=options.epochs
    ) as loader:
        if options.checkpoint and options.checkpoint.exists():
            saved = torch.load(options.checkpoint)
            model.module.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
            loader.load_state_dict(saved["loader"])  # the same on every rank
        steps, correct, seen = 0, 0, 0
        for batch in loader:
            output = model(batch["image"].float() / 255)
            loss = nn.functional.cross_entropy(output, batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
            correct += int((output.argmax(1) == batch["label"]).sum())
            seen += len(batch["label"])
            if steps == options.stop_after:
                break
        save(options.checkpoint, model, optimizer, loader)
        report(loader, steps, correct / max(seen, 1))


def save(path: Path | None, model: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader[Any]) -> None:
    """Write the checkpoint, on rank 0: the loader's state is the same on every rank."""
    if path is not None and dist.get_rank() == 0:
        unfinished = path.with_suffix(".unfinished")
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "loader": loader.state_dict()}
        torch.save(state, unfinished)
        os.replace(unfinished, path)


def report(loader: DataLoader[Any], steps: int, accuracy: float) -> None:
    """Print, on rank 0, what all ranks did: their receipts add up to the table."""
    found: list[Any] = [None] * dist.get_world_size()
    # In a group of its own, whose threads end with it: a thread of gloo's lets go of what was gathered a little later,
    # and aborts the process if Python has ended meanwhile. DDP keeps the other group's threads until then.
    group = dist.new_group()
    dist.all_gather_object(found, (steps, loader.receipt()), group=group)
    dist.destroy_process_group(group)
    if dist.get_rank() == 0:
        receipt = sum(receipt for _, receipt in found)
        print(f"steps on each rank: {[steps for steps, _ in found]}, accuracy {accuracy:.1%} on rank 0")
        print(
            f"epoch {receipt.epoch}: {receipt.delivered - receipt.padded} of {receipt.rows} rows by "
            f"{receipt.world_size} ranks, {receipt.padded} repeated, whole: {receipt.whole}"
        )


if __name__ == "__main__":
    main()
