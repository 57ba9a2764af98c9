"""Lightning: the loader itself is handed to `Trainer.fit`, and a run that was cut off goes on where it was.

A run of two epochs is stopped in the middle of the second one; another run goes on from its checkpoint, with a loader
and a model of its own. Together they have seen, batch for batch, what one run sees.
Run `python -m examples.lightning_resume`.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `python examples/lightning_resume.py`

from examples import tables
from pyloader_delta import DataLoader, FieldSpec


class Digits(lightning.LightningModule):
    """A linear model that notes which labels it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(64, 10)
        self.seen: list[list[int]] = []

    def training_step(self, batch: dict[str, torch.Tensor], number: int) -> torch.Tensor:
        self.seen.append(batch["label"].tolist())
        pixels = batch["image"].flatten(1).float() / 255
        return torch.nn.functional.cross_entropy(self.layer(pixels), batch["label"])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), 0.01)


def make_loader(table: str, **options: Any) -> DataLoader:
    image = FieldSpec("image", decode_numpy_and_apply_shape=(8, 8))
    return DataLoader.from_delta(
        table, 64, fields=[image, "label"], filter="split = 'train'", shuffle=True, num_workers=1, **options
    )


def run(table: str, folder: str, stop: int, max_steps: int = -1, checkpoint: str | None = None) -> Digits:
    model = Digits()
    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, max_epochs=2, max_steps=max_steps, logger=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[ModelCheckpoint(folder, every_n_train_steps=stop, save_top_k=-1)],
    )  # fmt: skip
    with make_loader(table) as loader:
        trainer.fit(model, loader, ckpt_path=checkpoint)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default=tables.FOLDER, help="where the table is kept (default: %(default)s)")
    parser.add_argument("--stop", type=int, default=30, help="steps before the cut; an epoch has 23 (default: 30)")
    options = parser.parse_args()
    table, stop = tables.digits(options.folder), options.stop
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", ".*does not have many workers.*|The dirpath has changed.*")
    torch.set_num_threads(1)

    with tempfile.TemporaryDirectory() as folder:
        whole = run(table, f"{folder}/whole", stop)
        first = run(table, f"{folder}/cut", stop, max_steps=stop)
        (checkpoint,) = map(str, Path(folder, "cut").glob("*.ckpt"))
        rest = run(table, f"{folder}/rest", stop, checkpoint=checkpoint)
    print(f"whole run: {len(whole.seen)} batches; cut off after {len(first.seen)}, then {len(rest.seen)} more")
    print(f"the same batches in the same order: {first.seen + rest.seen == whole.seen}")


if __name__ == "__main__":
    main()
