"""A run of a former version is refused in one line, and nothing of it is lost."""

from pathlib import Path

import pytest

import raysim


@pytest.mark.parametrize("file", ["visits.journal", "visits.parquet", "kept/1.bin", "kept.safetensors"])
@pytest.mark.parametrize("only", [False, True])
def test_a_run_of_a_former_version_is_refused(file: str, only: bool, tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "radfed" / file).parent.mkdir(parents=True)
    config = '[data]\ndataset = "digits"\n[algorithm]\nname = "radfed"\nmerge_every = 4\n'
    contents = {"config.toml": config, "run.log": "begun", "radfed/metrics.journal": "rows", f"radfed/{file}": "rows"}
    for name, content in contents.items():
        (run / name).write_text(content)
    message = rf"run: holds radfed/{file.partition('/')[0]} of an earlier raysim: must be .*start a new run from"
    with pytest.raises(raysim.InputError, match=message) as error:
        raysim.resume(run / "radfed" if only else run, inline=True)
    assert "\n" not in str(error.value)
    there = {str(path.relative_to(run)): path.read_text() for path in run.rglob("*") if path.is_file()}
    assert there == contents
