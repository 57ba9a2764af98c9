"""Hugging Face's Trainer: `get_train_dataloader` returns the loader, and `ResumeCallback` makes resuming exact.

A run of two epochs stops in the middle of the second one; another goes on from its checkpoint. Together they have seen,
batch for batch, what one run sees. Run `python -m examples.trainer_resume`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainingArguments

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `python examples/trainer_resume.py`

from examples import tables
from pyloader_delta import DataLoader, FieldSpec
from pyloader_delta.adapters.transformers import ResumeCallback

STEPS = 46  # two epochs


class Digits(torch.nn.Module):
    """A linear model that notes which labels it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(64, 10)
        self.seen: list[list[int]] = []

    def forward(self, image: torch.Tensor, label: torch.Tensor) -> dict[str, torch.Tensor]:
        self.seen.append(label.tolist())
        return {"loss": torch.nn.functional.cross_entropy(self.layer(image.flatten(1).float() / 255), label)}


class LoaderTrainer(Trainer):
    def __init__(self, loader: DataLoader, **options: Any) -> None:
        self.loader = loader
        super().__init__(callbacks=[ResumeCallback(loader)], **options)

    def get_train_dataloader(self) -> Any:
        return self.loader


def run(table: str, folder: str, stop: int, max_steps: int = STEPS, resume: bool = False) -> Digits:
    model = Digits()
    arguments = TrainingArguments(
        folder, max_steps=max_steps, save_steps=stop, save_strategy="steps", ignore_data_skip=True, use_cpu=True,
        report_to=[], logging_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    image = FieldSpec("image", decode_numpy_and_apply_shape=(8, 8))
    with DataLoader.from_delta(
        table, 64, fields=[image, "label"], filter="split = 'train'", shuffle=True, num_workers=1
    ) as loader:
        LoaderTrainer(loader, model=model, args=arguments).train(resume_from_checkpoint=resume or None)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default=tables.FOLDER, help="where the table is kept (default: %(default)s)")
    parser.add_argument("--stop", type=int, default=30, help="steps before the cut; an epoch has 23 (default: 30)")
    options = parser.parse_args()
    table, stop = tables.digits(options.folder), options.stop
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        whole = run(table, f"{folder}/whole", stop)
        first = run(table, f"{folder}/cut", stop, max_steps=stop)
        rest = run(table, f"{folder}/cut", stop, resume=True)
    print(f"whole run: {len(whole.seen)} batches; cut off after {len(first.seen)}, then {len(rest.seen)} more")
    print(f"the same batches in the same order: {first.seen + rest.seen == whole.seen}")


if __name__ == "__main__":
    main()
