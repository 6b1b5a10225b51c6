"""Every shared file is read, or refused in one sentence; shared_counts.tsv was counted with csv and gzip alone.

An empty count is one that only the germline genes tell: which chains can be put together.
"""

import csv
import os
from pathlib import Path

import pytest

from airrformer.config import Dataset
from airrformer.errors import UserError
from airrformer.parse.dataset import parse_files, reasons_of
from airrformer.parse.describe import guess_chains

DATA = os.environ.get("AIRRFORMER_DATA")
pytestmark = pytest.mark.skipif(not DATA, reason="AIRRFORMER_DATA names no folder of real receptors")
with (Path(__file__).parent / "shared_counts.tsv").open() as lines:
    COUNTS = list(csv.DictReader(lines, delimiter="\t"))
CHOICES = {
    "--chains heavy": {"receptor": "antibody", "chains": ["heavy"]},
    "--set repeated_ids=rename": {"repeated_ids": "rename"},
}
# Beyond these it is not counted what numbering would tell: it takes minutes, and tests/receptors holds it to ANARCI.
NUMBERED = 20


@pytest.mark.parametrize("row", COUNTS, ids=[f"{row['file']} {row['options']}".strip() for row in COUNTS])
def test_counts(row):
    path = f"{DATA}/{row['file']}"
    settings = {"sequences": path, **CHOICES.get(row["options"], {})}

    def parse():
        chosen = settings if "chains" in settings else settings | guess_chains([path], settings)
        return parse_files([path], Dataset(**chosen), most_numbered=NUMBERED, told_only="chains" not in settings)

    if row["records"] == "refused":
        with pytest.raises(UserError) as refused:
            parse()
        assert str(refused.value).startswith(path) and "\n" not in str(refused.value)
        return
    found = parse()
    assert found.records == found.table.num_rows + len(found.rejected) == int(row["records"])
    undecided = (found.rejected["reason"] == "would be numbered").sum()
    for name, count in (("chains", found.table.num_rows), ("receptors", len(found.receptor_ids))):
        if row[name] and not undecided:
            assert count == int(row[name]), name
    if row["not_productive"]:
        assert reasons_of(found.rejected)["not productive"] == int(row["not_productive"])
