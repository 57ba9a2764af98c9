"""Lightning with two DDP processes: `lightning_ddp.py TABLE FOLDER`; each rank writes FOLDER/RANK.json."""

import json
import logging
import sys
import warnings
from pathlib import Path

import lightning
import torch

from pyloader_delta import DataLoader


class Noting(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen = []

    def training_step(self, batch, number):
        self.seen.append([self.current_epoch, batch["id"].tolist()])
        return self.layer(batch["id"][:, None].float()).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 1e-6)


def fit(loader):
    model = Noting()
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=2, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(model, loader)
    return model.seen, trainer.global_rank


if __name__ == "__main__":
    table, folder = sys.argv[1:]
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    found = {}
    with DataLoader.from_delta(table, 8, shuffle=True, num_workers=0) as loader:  # before there are any ranks
        found["loader"], rank = fit(loader)
    with DataLoader.from_delta(table, 8, shuffle=True, num_workers=0) as loader:
        found["to_torch"], rank = fit(loader.to_torch())
    Path(folder, f"{rank}.json").write_text(json.dumps(found))
