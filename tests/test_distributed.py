"""Several training processes, as their launchers start them: no hang, equal steps, each row once; their examples."""

import importlib.util
import json
import re
from collections import Counter

import pytest
from programs import QUIET, free_ports, python, together
from writing import number_table

has = {name: importlib.util.find_spec(name) is not None for name in ("torch", "tensorflow", "sklearn")}
needs_torch = pytest.mark.skipif(not (has["torch"] and has["sklearn"]), reason="torch or scikit-learn is not installed")
needs_tensorflow = pytest.mark.skipif(not has["tensorflow"], reason="TensorFlow is not installed")


def run(*command: object) -> str:
    return python(*command, env=QUIET).stdout


@pytest.mark.slow
@needs_torch
def test_the_torchrun_example_breaks_off_on_three_ranks_and_goes_on_with_one(tmp_path):
    options = ["--folder", str(tmp_path), "--checkpoint", str(tmp_path / "digits.pt"), "--epochs", "2"]

    def torchrun(n: int, *more: str) -> str:
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n)]
        return run(*launcher, "examples/torchrun_ddp.py", *options, *more)

    text = torchrun(3, "--stop-after", "20")
    assert "steps on each rank: [20, 20, 20]" in text
    assert "epoch 2: 480 of 1437 rows by 3 ranks" in text  # the second epoch's first five batches of 32, on each
    text = torchrun(1)
    assert "steps on each rank: [30]" in text  # the 957 rows of the second epoch that are left
    assert "epoch 2: 957 of 1437 rows by 1 ranks" in text


@pytest.mark.slow
@needs_tensorflow
@pytest.mark.skipif(not has["sklearn"], reason="scikit-learn is not installed")
def test_the_checkpoint_example_goes_on_with_the_very_next_batch(tmp_path):
    text = run("-m", "examples.tf_checkpoint", "--folder", str(tmp_path), "--epochs", "2", "--stop-after", "30")
    assert "46 steps without a break, 46 with one after 30" in text
    assert "the same batches: True" in text
    assert "the same losses: True" in text


_WORKER = """
import json, os, sys
table, index, *addresses = sys.argv[1:]
task = {"type": "worker", "index": int(index)}
os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": task})
import tensorflow as tf
from pyloader_delta import DataLoader

strategy = tf.distribute.MultiWorkerMirroredStrategy()
loaders = []

def dataset(context):
    loader = DataLoader.from_delta(
        table, 64, shuffle=True, framework="tensorflow", num_workers=1,
        rank=context.input_pipeline_id, world_size=context.num_input_pipelines,
    )
    loaders.append(loader)
    return loader.to_tf()

with strategy.scope():
    weight = tf.Variable(0.0)

@tf.function
def step(batch):
    def one(batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((weight * tf.cast(batch["x"], tf.float32) - 1.0) ** 2)
        gradient = tf.distribute.get_replica_context().all_reduce("MEAN", tape.gradient(loss, weight))
        weight.assign_sub(1e-9 * gradient)
        return tf.size(batch["x"])
    return strategy.reduce("SUM", strategy.run(one, args=(batch,)), axis=None)

seen, sizes = [], []
for batch in strategy.distribute_datasets_from_function(dataset):
    (local,) = strategy.experimental_local_results(batch["x"])
    seen += local.numpy().tolist()
    sizes.append(int(step(batch)))
print(json.dumps({"seen": seen, "sizes": sizes, "len": len(loaders[0]), "weight": float(weight.numpy())}))
loaders[0].close()
"""


@pytest.mark.slow
@needs_tensorflow
def test_tf_distribute_with_two_workers_gets_each_row_once_in_equal_steps(tmp_path):
    table = number_table(tmp_path / "table", [2000, 500, 1, 3000])
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    texts = together([("-c", _WORKER, table, index, *addresses) for index in range(2)], [QUIET, QUIET])
    found = [json.loads(re.findall(r"^\{.*\}$", text, re.MULTILINE)[-1]) for text in texts]
    rows = Counter(row for one in found for row in one["seen"])
    assert sorted(rows) == list(range(5501))
    assert sum(rows.values()) == 5502  # an odd number of rows: one is repeated
    assert found[0]["sizes"] == found[1]["sizes"] == [128] * 42 + [126]
    assert {len(one["sizes"]) for one in found} == {one["len"] for one in found} == {43}
    assert found[0]["weight"] == found[1]["weight"] > 0
