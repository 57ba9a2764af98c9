"""Ranks: every row on one of them, as many batches on each, found at `iter()`."""

from collections import Counter

import pytest
from fakes import AsIs, CountedNumbers, Numbers, NumpyThrough, Through, number_files, numbers, xs
from programs import python
from writing import number_table

from pyloader_delta import ConfigError, ContractError, DataLoader, DeltaDataReader, NumpyDataCollator

FILES = [20_000, 10_000, 5_000, 20_000, 12_000, 3_000, 25_000, 5_000]


def loader(root, rank, world_size, **options):
    options = {"num_workers": 0, "shuffle": True} | options
    return DataLoader(
        DeltaDataReader(512, shuffle=True), NumpyThrough(), NumpyDataCollator(), root,
        rank=rank, world_size=world_size, **options,
    )  # fmt: skip


@pytest.mark.parametrize("files", [FILES, [100_000]])
@pytest.mark.parametrize("uneven", ["pad", "mask", "drop"])
@pytest.mark.parametrize("world_size", [3, 7])
def test_T5_ranks_have_equal_steps_and_each_row_is_on_one(tmp_path, files, uneven, world_size):
    root, n_rows = number_table(tmp_path / "table", files), sum(files)
    seen, steps, padded = Counter(), set(), 0
    for rank in range(world_size):
        with loader(root, rank, world_size, uneven=uneven) as one:
            batches = list(one)
            assert len(batches) == len(one)
            padded += one.stats()["rows_padded_total"]
        steps.add(tuple(len(batch["x"]) for batch in batches))
        for batch in batches:
            seen.update(batch["x"][batch["_valid"]] if uneven == "mask" else batch["x"])
    assert len(steps) == 1
    assert padded == (0 if uneven == "drop" else -n_rows % world_size)
    assert len(seen) == (n_rows - n_rows % world_size if uneven == "drop" else n_rows)
    assert sum(seen.values()) == len(seen) + (padded if uneven == "pad" else 0)


@pytest.mark.parametrize("lengths", [[3], [1, 0, 1], [40, 1, 2]])
@pytest.mark.parametrize("uneven", ["pad", "drop"])
@pytest.mark.parametrize("drop_last", [False, True])
def test_T16_len_is_what_each_rank_yields(tmp_path, lengths, uneven, drop_last):
    root = number_files(tmp_path / "t", lengths)
    for rank in range(4):
        with numbers(root, rank=rank, world_size=4, uneven=uneven, drop_last=drop_last, num_workers=0) as one:
            n = len(one)
            if n:
                assert len(list(one)) == n
            else:
                with pytest.warns(UserWarning, match="yields no batch|leaves no batch"):
                    assert list(one) == []


def test_a_files_part_is_cut_from_the_whole_file(tmp_path):
    root = number_files(tmp_path / "t", [9])
    found = [xs(numbers(root, rank=rank, world_size=2, num_workers=0)) for rank in range(2)]
    assert found == [[[0, 1], [2, 3], [4]], [[5, 6], [7, 8], [5]]]


def test_rank_and_size_come_from_arguments_or_the_environment_when_a_pass_begins(tmp_path, monkeypatch):
    with numbers(number_files(tmp_path / "t", [8]), num_workers=0) as one:
        assert len(one) == 4
        monkeypatch.setenv("RANK", "1")
        with pytest.raises(ConfigError, match="set both or neither"):
            len(one)
        monkeypatch.setenv("WORLD_SIZE", "2")
        assert len(one) == 2
        assert xs(one) == [[4, 5], [6, 7]]
        monkeypatch.setenv("RANK", "2")
        with pytest.raises(ConfigError, match="RANK must be below WORLD_SIZE=2"):
            iter(one)
        monkeypatch.setenv("RANK", "one")
        with pytest.raises(ConfigError, match="RANK must be an int"):
            iter(one)
    with numbers(one.root_dir, rank=0, world_size=4, num_workers=0) as argued:
        assert xs(argued) == [[0, 1]]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"rank": 0}, "both rank and world_size"), ({"world_size": 2}, "both"),
        ({"rank": 2, "world_size": 2}, "rank must be below world_size=2"), ({"rank": -1, "world_size": 2}, "rank"),
        ({"rank": 0, "world_size": 0}, "world_size"), ({"rank": True, "world_size": 2}, "rank"),
        ({"uneven": "repeat"}, "'pad', 'mask' or 'drop'"),
    ],
)  # fmt: skip
def test_wrong_places_are_refused_at_once(tmp_path, options, named):
    with pytest.raises(ConfigError, match=named):
        numbers(number_files(tmp_path / "t", [4]), **options)


def test_lengths_that_are_not_known_cannot_be_shared_out(tmp_path):
    root = number_files(tmp_path / "t", [4])
    one = numbers(root, reader=Numbers(batch_size=2), rank=0, world_size=2, num_workers=0)
    with one, pytest.raises(ConfigError, match="count_samples"):
        iter(one)


def test_masks_need_batches_that_are_dicts(tmp_path):
    class Values(AsIs):
        def collate_batch(self, features):
            return features["x"]

    root = number_files(tmp_path / "t", [5])
    reader = CountedNumbers(batch_size=2)
    one = DataLoader(reader, Through(), Values(), root, rank=1, world_size=2, uneven="mask", num_workers=0)
    with one, pytest.raises(ContractError, match="_valid"):
        list(one)


def test_a_dataset_of_tensorflow_refuses_masks(tmp_path):
    one = numbers(number_files(tmp_path / "t", [5]), rank=0, world_size=2, uneven="mask", num_workers=0)
    with one, pytest.raises(ConfigError, match="take uneven='pad' or 'drop'"):
        one.to_tf()


_TRAIN = """
import sys, torch
import torch.distributed as dist
from pyloader_delta import DataLoader

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
for table in sys.argv[1:]:
    with DataLoader.from_delta(table, 512, shuffle=True, num_workers=1) as loader:
        seen, steps = [], 0
        for batch in loader:
            model(batch["x"].float()[:, None]).sum().backward()
            seen.append(batch["x"])
            steps += 1
        assert steps == len(loader)
    all_seen = [None] * dist.get_world_size()
    group = dist.new_group()  # whose threads end with it: one that lives on may abort the process as it exits
    dist.all_gather_object(all_seen, torch.cat(seen).tolist(), group=group)
    dist.destroy_process_group(group)
    del group
    if dist.get_rank() == 0:
        rows = [row for one in all_seen for row in one]
        print("rows", len(rows), len(set(rows)), [len(one) for one in all_seen])
dist.destroy_process_group()
"""


def test_T5_torchrun_trains_on_three_ranks_and_none_waits_for_ever(tmp_path):
    pytest.importorskip("torch")
    roots = [str(tmp_path / "table"), str(tmp_path / "one file")]
    for root, files in zip(roots, (FILES, [sum(FILES)]), strict=True):
        number_table(root, files)
    script = tmp_path / "train.py"
    script.write_text(_TRAIN)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 3]
    done = python(*launcher, script, *roots, env={"OMP_NUM_THREADS": "1"})
    assert done.stdout.splitlines().count("rows 100002 100000 [33334, 33334, 33334]") == 2
