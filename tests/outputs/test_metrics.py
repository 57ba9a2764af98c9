"""`stats()` goes into every logger in one line, and into Prometheus at each scrape."""

import gc
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from pyloader_delta.adapters.prometheus import _TEXTS, LoaderCollector
from pyloader_delta.stats import Stats
from tests.fakes import CountedNumbers, number_files, numbers

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
LINES = dict(re.findall(r"^\| ([^|`]+?) \| `(.+)` \|$", PAGE.split("## In one line")[1], re.MULTILINE))


@pytest.fixture
def loader(tmp_path):
    with numbers(number_files(tmp_path / "n", [10, 8]), reader=CountedNumbers(4), num_workers=0) as loader:
        list(loader)
        yield loader


class Registry:
    """Asks whoever registers at once."""

    def __init__(self, log):
        self.log = log

    def register(self, collector):
        for family in collector.collect():
            for sample in family.samples:
                self.log(sample.name, sample.value)


@pytest.mark.parametrize("where", LINES)
def test_each_line_of_the_page_logs_every_counter(loader, where):
    pytest.importorskip("prometheus_client", reason="prometheus_client is not installed")
    logged: dict[str, float] = {}

    def log(name, value, step=None):
        logged[name.split("/")[-1].removeprefix("pyloader_delta_")] = value

    def log_all(values, step=None):
        for name, value in values.items():
            log(name, value)

    words = {
        "loader": loader,
        "step": 7,
        "writer": SimpleNamespace(add_scalar=log),
        "mlflow": SimpleNamespace(log_metrics=log_all),
        "self": SimpleNamespace(log_dict=log_all),
        "run": SimpleNamespace(log=log_all),
        "REGISTRY": Registry(log),
        "LoaderCollector": LoaderCollector,
    }
    eval(LINES[where], words)
    assert logged == loader.stats()
    assert logged["rows_delivered_total"] == 18


def test_the_page_has_a_line_for_each_logger():
    assert [where.split(",")[0] for where in LINES] == [
        "TensorBoard",
        "MLflow",
        "Lightning",
        "Weights & Biases",
        "Prometheus",
    ]


def test_every_counter_is_in_the_page_and_has_a_text(loader):
    assert {name for name in loader.stats() if f"`{name}`" not in PAGE} == set()
    assert set(Stats().flat()) == set(_TEXTS)


def test_names_end_as_prometheus_has_them(loader):
    names = list(loader.stats())
    assert [name for name in names if "seconds" in name or "bytes" in name] == [
        name for name in names if name.removesuffix("_total").endswith(("_seconds", "_bytes"))
    ]
    before = loader.stats()
    list(loader)
    after = loader.stats()
    counters = [name for name in names if name.endswith("_total")]
    assert {"rows_delivered_total", "delivered_bytes_total", "pass_seconds_total"} <= set(counters)
    assert all(after[name] >= before[name] for name in counters)
    assert after["rows_delivered_total"] == before["rows_delivered_total"] + 18


def test_prometheus_gets_counters_and_gauges_with_labels(loader):
    client = pytest.importorskip("prometheus_client", reason="prometheus_client is not installed")
    registry = client.CollectorRegistry()
    for split in ("train", "test"):
        registry.register(LoaderCollector(loader, {"split": split}))
    text = client.generate_latest(registry).decode()
    assert 'pyloader_delta_rows_delivered_total{split="train"} 18.0' in text
    assert 'pyloader_delta_batches_delivered_total{split="test"} 5.0' in text
    assert "# TYPE pyloader_delta_epoch gauge" in text
    assert "# TYPE pyloader_delta_wait_seconds_total counter" in text


def test_a_registry_does_not_keep_a_loader(tmp_path):
    client = pytest.importorskip("prometheus_client", reason="prometheus_client is not installed")
    registry = client.CollectorRegistry()
    loader = numbers(number_files(tmp_path / "n", [4]), reader=CountedNumbers(4), num_workers=0)
    registry.register(LoaderCollector(loader))
    del loader
    gc.collect()
    assert client.generate_latest(registry) == b""
