"""deltatorch: `create_pytorch_dataloader` on the table itself, with two workers. It makes single rows, then batches."""

from pathlib import Path

import numpy as np
from deltatorch import FieldSpec, create_pytorch_dataloader

from benchmarks import handmade


def loader(paths, batch_size, shuffle_rows=0, *, workload):
    """Return its DataLoader; it shuffles within the row groups of a worker."""
    fields = [FieldSpec(name) for name in handmade.INTS]
    if workload == "images":
        fields.append(FieldSpec("image", decode_numpy_and_apply_shape=(28, 28), transform=np.array))
    elif workload == "jpeg":
        fields.append(FieldSpec("image", transform=lambda row: handmade.decoded([row])[0]))
    else:
        import pyarrow.parquet as pq

        fields += [FieldSpec(name) for name in pq.read_schema(paths[0]).names if name not in handmade.INTS]
    return create_pytorch_dataloader(
        str(Path(paths[0]).parent), id_field="id", fields=fields, batch_size=batch_size, shuffle=bool(shuffle_rows),
        num_workers=2,
    )  # fmt: skip
