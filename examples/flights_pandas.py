"""Flights as data frames: scikit-learn learns from a table that need not fit in memory, frame by frame.

Each batch is a pandas.DataFrame of Arrow-backed columns: whole numbers stay whole beside nulls, which `dropna` then
leaves out here. Record batches of Arrow are counted first, without pandas. Run `python -m examples.flights_pandas`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pandas as pd
from sklearn.linear_model import SGDClassifier

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `python examples/flights_pandas.py`

from examples import tables
from pyloader_delta import DataLoader

KNOWN = ["dep_delay", "distance"]


def known_and_late(frame: pd.DataFrame) -> tuple[pd.DataFrame, pd.Series]:
    arrived = frame.dropna()
    return arrived[KNOWN].astype("float64") / [30, 1000], arrived["arr_delay"].astype("float64") >= 15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default=tables.FOLDER, help="where the table is kept (default: %(default)s)")
    table = tables.flights(parser.parse_args().folder)

    with DataLoader.from_delta(table, 8192, columns=["arr_delay"], framework="arrow") as loader:
        never = sum(batch.column("arr_delay").null_count for batch in loader)
        print(f"arrow: {never} of {loader.rows_per_epoch} flights never arrived")

    columns, model = [*KNOWN, "arr_delay"], SGDClassifier("log_loss", random_state=0)
    train = DataLoader.from_delta(
        table, 4096, columns=columns, filter="month <= 10", shuffle=True, framework="pandas", num_epoch=2
    )
    test = DataLoader.from_delta(table, 8192, columns=columns, filter="month > 10", framework="pandas")
    with train, test:
        for frame in train:
            model.partial_fit(*known_and_late(frame), classes=[False, True])
        found = pd.concat([(model.predict(x) == late) for x, late in map(known_and_late, test)])
    print(f"pandas: {found.mean():.1%} of the test flights are told right")


if __name__ == "__main__":
    main()
