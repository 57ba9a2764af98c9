"""Two processes of Spark's TorchDistributor on this machine: what each one saw, and what it took for its rank."""

import json
import os
import sys
from pathlib import Path


def train(table: str, folder: str) -> int:
    import torch
    import torch.distributed

    from pyloader_delta import DataLoader

    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
    with DataLoader.from_delta(table, 16, shuffle=True, num_workers=1) as loader:
        place = loader._place()
        epochs = []
        for _ in range(2):
            seen = []
            for batch in loader:
                model(batch["id"][:, None].float()).sum().backward()  # waits for the other rank: steps must be equal
                seen.append(batch["id"].tolist())
            epochs.append(seen)
    found = {"rank": place.rank, "world_size": place.world_size, "env": os.environ["RANK"], "epochs": epochs}
    Path(folder, f"{rank}.json").write_text(json.dumps(found))
    torch.distributed.destroy_process_group()
    return sum(map(len, epochs))


def main(table: str, folder: str) -> None:
    from pyspark.ml.torch.distributor import TorchDistributor
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    steps = TorchDistributor(num_processes=2, local_mode=True, use_gpu=False).run(train, table, folder)
    spark.stop()
    print(f"{steps} steps")


if __name__ == "__main__":
    main(*sys.argv[1:])
