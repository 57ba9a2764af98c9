"""Several processes under Lightning and Accelerate: each row once an epoch over all ranks, or a loud refusal."""

import importlib.util
import json
import shutil
from pathlib import Path

import pytest
from programs import ROOT, free_ports, python, together
from writing import number_table

pytestmark = pytest.mark.frameworks

PROGRAMS = Path(__file__).parent / "programs"
N_ROWS = 100


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return number_table(tmp_path_factory.mktemp("table"), [30, 30, 30, 10], column="id")


def environment(**more):
    return {"OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(*free_ports(1)), **more}


def test_lightning_does_not_shard_again_what_ranks_have_already(table, tmp_path):
    pytest.importorskip("lightning")
    python(PROGRAMS / "lightning_ddp.py", table, tmp_path, env=environment())
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
    program = (PROGRAMS / "accelerate_two.py", table, tmp_path)
    together([program, program], [env | {"RANK": rank, "LOCAL_RANK": rank} for rank in ("0", "1")])
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)]
    assert [rank["untouched"] for rank in ranks] == [True, True]
    assert sorted(i for rank in ranks for ids in rank["seen"] for i in ids) == list(range(N_ROWS))
    for rank in ranks:
        assert "shared out again" in rank["refused"]


@pytest.mark.skipif(importlib.util.find_spec("pyspark") is None, reason="pyspark is not installed")
@pytest.mark.skipif(shutil.which("java") is None, reason="there is no Java, which Spark needs")
def test_sparks_torch_distributor_gets_each_row_once_in_equal_steps(table, tmp_path):
    env = {"OMP_NUM_THREADS": "1", "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT)}
    python(PROGRAMS / "spark_two.py", table, tmp_path, env=env)  # the distributor sets MASTER_ADDR and MASTER_PORT
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)]
    assert [(rank["rank"], rank["world_size"], rank["env"]) for rank in ranks] == [(0, 2, "0"), (1, 2, "1")]
    orders = []
    for epoch in (0, 1):
        batches = [rank["epochs"][epoch] for rank in ranks]
        assert [len(share) for share in batches] == [4, 4]
        assert sorted(i for share in batches for ids in share for i in ids) == list(range(N_ROWS))
        orders.append(batches)
    assert orders[0] != orders[1]
