"""What Accelerate makes of loaders in two processes: `accelerate_two.py TABLE FOLDER`, with torchrun's environment."""

import json
import sys
from pathlib import Path

from accelerate import Accelerator

from pyloader_delta import ConfigError, DataLoader


def refusal(accelerator, loader):
    """Return the error of iterating what `prepare` makes of torch's DataLoader."""
    try:
        next(iter(accelerator.prepare(loader.to_torch())))
    except ConfigError as error:
        return str(error)
    return None


if __name__ == "__main__":
    table, folder = sys.argv[1:]
    accelerator = Accelerator(cpu=True)
    with DataLoader.from_delta(table, 8, shuffle=True, num_workers=0) as loader:
        prepared = accelerator.prepare(loader)
        found = {
            "untouched": prepared is loader,
            "seen": [batch["id"].tolist() for batch in prepared],
            "refused": refusal(accelerator, loader),
        }
    Path(folder, f"{accelerator.process_index}.json").write_text(json.dumps(found))
    accelerator.end_training()
