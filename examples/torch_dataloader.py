"""`to_torch()`: torch's own DataLoader, for code that wants one; its state goes on in the middle of an epoch.

It has the methods of torchdata's StatefulDataLoader. Run `python -m examples.torch_dataloader`.
"""

from __future__ import annotations

import argparse
import sys
from itertools import islice
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `python examples/torch_dataloader.py`

from examples import tables
from pyloader_delta import DataLoader, FieldSpec

STOP = 9  # batches


def make_loader(table: str) -> DataLoader:
    image = FieldSpec("image", decode_numpy_and_apply_shape=(8, 8))
    return DataLoader.from_delta(table, 64, fields=[image, "label"], filter="split = 'train'", shuffle=True)


def train(batches: torch.utils.data.DataLoader, model: torch.nn.Module, steps: int | None = None) -> list[list[int]]:
    """Return the labels of each batch trained on."""
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    seen = []
    for batch in islice(batches, steps):
        pixels = batch["image"].flatten(1).float() / 255
        torch.nn.functional.cross_entropy(model(pixels), batch["label"]).backward()
        optimizer.step()
        optimizer.zero_grad()
        seen.append(batch["label"].tolist())
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default=tables.FOLDER, help="where the table is kept (default: %(default)s)")
    table = tables.digits(parser.parse_args().folder)
    torch.set_num_threads(1)
    model = torch.nn.Linear(64, 10)
    with make_loader(table) as loader:
        batches = loader.to_torch()
        assert isinstance(batches, torch.utils.data.DataLoader)
        print(f"DataLoader: {len(batches)} batches of {len(batches.dataset)} rows")
        whole = train(batches, model)
    with make_loader(table) as loader:
        batches = loader.to_torch()
        first = train(batches, model, STOP)
        state = batches.state_dict()  # beside the model's own
    with make_loader(table) as loader:
        batches = loader.to_torch()
        batches.load_state_dict(state)
        rest = train(batches, model)
    print(f"the same batches in the same order: {first + rest == whole}")


if __name__ == "__main__":
    main()
