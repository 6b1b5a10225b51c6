"""Paths of a dataset with variables of the environment and patterns."""

import pytest

from airrformer.config import Dataset
from airrformer.errors import UserError
from airrformer.parse import parse_dataset
from airrformer.parse.dataset import parse_files


def dataset(sequences, **settings):
    return Dataset(sequences=sequences, receptor="TCR", chains=["TRB"], **settings)


def test_variables_and_patterns_are_expanded_and_the_config_keeps_what_is_written(tmp_path, monkeypatch):
    for name in ("b", "a"):
        (tmp_path / f"{name}.csv").write_text(f"sequence_id,junction_aa\n{name},CASSF\n")
    monkeypatch.setenv("AIRRFORMER_TEST_DATA", str(tmp_path))
    written = "$AIRRFORMER_TEST_DATA/*.csv"
    found = dataset(written, labels={"path": "${AIRRFORMER_TEST_DATA}/a.csv", "id": "sequence_id", "column": "x"})
    assert found.files == [str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]
    assert found.label_files == [str(tmp_path / "a.csv")]
    assert found.model_dump()["sequences"] == written
    assert found.moving == [*found.files, *found.label_files] and dataset(found.files).moving == []
    assert parse_dataset(dataset(written), tmp_path / "out")["files"] == found.files
    assert dataset([written, "${AIRRFORMER_TEST_DATA}/a.csv"]).files[2] == str(tmp_path / "a.csv")


def test_what_cannot_be_expanded_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.delenv("AIRRFORMER_TEST_DATA", raising=False)
    with pytest.raises(UserError, match=r"^sequences: \$AIRRFORMER_TEST_DATA is not set; export AIRRFORMER_TEST_DATA="):
        _ = dataset("$AIRRFORMER_TEST_DATA/a.csv").files
    with pytest.raises(UserError, match=r"^labels.path: \$AIRRFORMER_TEST_DATA is not set"):
        _ = dataset("a.csv", labels={"path": "${AIRRFORMER_TEST_DATA}/a.csv"}).label_files
    with pytest.raises(
        UserError, match=r"^sequences: no file is like '.*nothing\*.csv'; mend the folder or the pattern"
    ):
        _ = dataset(f"{tmp_path}/nothing*.csv").files


def test_a_file_of_an_odd_name_is_that_file(tmp_path):
    path = tmp_path / "cells[1] $5*.csv"
    path.write_text("sequence_id,junction_aa\na,CASSF\n")
    assert dataset(str(path)).files == [str(path)]
    assert parse_files([str(path)], dataset(str(path))).receptor_ids == ["a"]
    assert dataset("missing.csv").files == ["missing.csv"]  # said where files are checked
