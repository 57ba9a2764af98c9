"""The command line makes, looks at, checks and measures a table in an object store; it tells no secret."""

import json
from importlib.metadata import entry_points

import pytest

pytest.importorskip("click", reason="the extra 'cli' is not installed")
pytest.importorskip("rich", reason="the extra 'cli' is not installed")


def test_the_commands_work_on_a_table_in_s3(s3, tmp_path, capsys, monkeypatch):
    (entry,) = entry_points(group="console_scripts", name="pyloader-delta")
    options = [f"--storage-option={name}={value}" for name, value in s3.storage_options.items()]
    monkeypatch.chdir(tmp_path)  # where rejects are listed

    def run(*args: str) -> dict:
        with pytest.raises(SystemExit) as ended:
            entry.load()([*args, *options, "--json"])
        captured = capsys.readouterr()
        assert ended.value.code in (0, None), captured.err + captured.out
        for name, value in s3.storage_options.items():
            assert "secret" not in name or value not in captured.out + captured.err
        return json.loads(captured.out)

    (tmp_path / "a.csv").write_text("n,w\n" + "".join(f"{i},word {i}\n" for i in range(500)))
    assert run("convert", "a.csv", "s3://bucket/cli/t")["n_rows"] == 500
    assert run("convert", "a.csv", "s3://bucket/cli/t")["n_records_before"] == 500
    found = run("inspect", "s3://bucket/cli/t")
    assert (found["n_rows"], found["n_files"], found["n_dead_files"]) == (500, 1, 0)
    assert run("check", "s3://bucket/cli/t", "--full")["problems"] == []
    assert run("bench", "s3://bucket/cli/t", "--seconds", "0.02", "--workers", "1")["best_num_workers"] == 1
    assert run("preview", "s3://bucket/cli/t", "--batch-size", "50")["n_rows"] == 500
