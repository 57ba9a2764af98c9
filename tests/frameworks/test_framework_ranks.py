"""Several processes under Lightning and Accelerate: each row once an epoch over all ranks, or a loud refusal."""

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

pytestmark = pytest.mark.frameworks

PROGRAMS = Path(__file__).parent / "programs"
N_ROWS = 100


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("table"))
    for start in range(0, N_ROWS, 30):
        write_deltalake(path, pa.table({"id": range(start, min(start + 30, N_ROWS))}), mode="append")
    return path


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


def environment(**more):
    return {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), **more}


def ended(*processes):
    for process in processes:
        text, _ = process.communicate(timeout=240)
        assert process.returncode == 0, text


def start(program, *arguments, env):
    return subprocess.Popen(
        [sys.executable, str(PROGRAMS / program), *map(str, arguments)],
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def test_lightning_does_not_shard_again_what_ranks_have_already(table, tmp_path):
    pytest.importorskip("lightning")
    ended(start("lightning_ddp.py", table, tmp_path, env=environment()))
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)]
    orders = []
    for form in ("loader", "to_torch"):
        for epoch in (0, 1):
            batches = [[ids for of, ids in rank[form] if of == epoch] for rank in ranks]
            assert [len(share) for share in batches] == [7, 7]
            assert sorted(i for share in batches for ids in share for i in ids) == list(range(N_ROWS))
            orders.append(batches)
    assert orders[0] == orders[2]
    assert orders[0] != orders[1] == orders[3]


def test_accelerate_leaves_a_loader_alone_and_its_sharing_of_torchs_is_refused_on_every_rank(table, tmp_path):
    pytest.importorskip("accelerate")
    env = environment(WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", ACCELERATE_USE_CPU="true")
    ended(
        *(
            start("accelerate_two.py", table, tmp_path, env=env | {"RANK": rank, "LOCAL_RANK": rank})
            for rank in ("0", "1")
        )
    )
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)]
    assert [rank["untouched"] for rank in ranks] == [True, True]
    assert sorted(i for rank in ranks for ids in rank["seen"] for i in ids) == list(range(N_ROWS))
    for rank in ranks:
        assert "shared out again" in rank["refused"]


@pytest.mark.skipif(importlib.util.find_spec("pyspark") is None, reason="pyspark is not installed")
@pytest.mark.skipif(shutil.which("java") is None, reason="there is no Java, which Spark needs")
def test_sparks_torch_distributor_gets_each_row_once_in_equal_steps(table, tmp_path):
    env = environment(SPARK_LOCAL_IP="127.0.0.1", PYTHONPATH=str(PROGRAMS.parents[2]))
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        del env[name]  # which the distributor sets
    ended(start("spark_two.py", table, tmp_path, env=env))
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)]
    assert [(rank["rank"], rank["world_size"], rank["env"]) for rank in ranks] == [(0, 2, "0"), (1, 2, "1")]
    orders = []
    for epoch in (0, 1):
        batches = [rank["epochs"][epoch] for rank in ranks]
        assert [len(share) for share in batches] == [4, 4]
        assert sorted(i for share in batches for ids in share for i in ids) == list(range(N_ROWS))
        orders.append(batches)
    assert orders[0] != orders[1]
