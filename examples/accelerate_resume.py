"""Accelerate: model and optimizer are prepared, the loader is not; `save_state` holds the loader's place as well.

`Accelerator.prepare` leaves a loader as it is: each process reads its own share already. Registered for checkpoints, it
goes on in the middle of an epoch. Run `python -m examples.accelerate_resume`, or with
`accelerate launch --cpu --num_processes 2 examples/accelerate_resume.py`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import torch
from accelerate import Accelerator

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `python examples/accelerate_resume.py`

from examples import tables
from pyloader_delta import DataLoader, FieldSpec

STOP = 9  # batches


def train(table: str, accelerator: Accelerator, save_to: str = "", load_from: str = "") -> list[list[int]]:
    """Return the labels of each batch of one epoch, or of the part of it after a checkpoint or up to one."""
    model = torch.nn.Linear(64, 10)
    model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), 0.01))
    image = FieldSpec("image", decode_numpy_and_apply_shape=(8, 8))
    seen: list[list[int]] = []
    with DataLoader.from_delta(
        table, 64, fields=[image, "label"], filter="split = 'train'", shuffle=True, num_workers=1,
        device=accelerator.device, pin_memory=True,
    ) as loader:  # fmt: skip
        accelerator._custom_objects.clear()  # this program trains three times with one accelerator
        accelerator.register_for_checkpointing(loader)
        if load_from:
            accelerator.load_state(load_from)
        for batch in loader:
            loss = torch.nn.functional.cross_entropy(model(batch["image"].flatten(1).float() / 255), batch["label"])
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            seen.append(batch["label"].tolist())
            if save_to and len(seen) == STOP:
                accelerator.save_state(save_to)
                break
    accelerator._models.clear()
    accelerator._optimizers.clear()
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default=tables.FOLDER, help="where the table is kept (default: %(default)s)")
    folder = parser.parse_args().folder
    accelerator = Accelerator(cpu=True)
    with accelerator.main_process_first():
        table = tables.digits(folder)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as checkpoint:
        whole = train(table, accelerator)
        first = train(table, accelerator, save_to=checkpoint)
        rest = train(table, accelerator, load_from=checkpoint)
    n_rows = sum(map(len, whole))
    print(f"rank {accelerator.process_index} of {accelerator.num_processes}: {len(whole)} batches, {n_rows} rows")
    print(f"the same batches in the same order: {first + rest == whole}")


if __name__ == "__main__":
    main()
