"""The files in data/ are what data/README.md says, and the script makes them again from the wheels."""

import csv
import gzip
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from airrformer.receptors.germlines import rebuild_chain

ROOT = Path(__file__).parents[2]
DATA = ROOT / "data"


def fasta(name):
    lines = gzip.decompress((DATA / name).read_bytes()).decode().splitlines()
    return [(header[1:].split("|"), sequence) for header, sequence in zip(lines[::2], lines[1::2])]


def table(name):
    with (DATA / name).open(newline="", encoding="utf-8") as handle:
        return list(csv.DictReader(handle, delimiter="\t"))


def test_tcr_receptors_are_distinct_and_of_one_class():
    records, labels = fasta("sars2_tcr.fasta.gz"), table("sars2_tcr.labels.tsv")
    assert [fields[0] for fields, _ in records] == [row["receptor_id"] for row in labels]
    receptors = {(v.split("*")[0], junction, j.split("*")[0]) for (_, _, v, junction, j), _ in records}
    assert len(receptors) == len({sequence for _, sequence in records}) == len(labels)
    counts = Counter(row["epitope"] for row in labels)
    assert counts == {
        "YLQPRTFLL": 250,
        "SPRWYFYYL": 250,
        "HTTDPSFLGRY": 250,
        "NYNYLYRLF": 134,
        "KTFPPTEPK": 250,
        "FPPTSFGPL": 232,
    }
    for epitope in counts:
        assert len({row["subject_id"] for row in labels if row["epitope"] == epitope}) >= 13
    assert not any(junction == "CASSIRSSYEQYF" for (_, _, _, junction, _), _ in records)


def test_tcr_chains_are_their_genes_and_junction():
    for (_, locus, v, junction, j), sequence in fasta("sars2_tcr.fasta.gz"):
        assert locus == "TRB" and junction[0] == "C" and junction[-1] in "FW"
        assert rebuild_chain(v, junction, j).sequence_aa == sequence


def test_antibody_chains_are_those_of_the_table():
    records, labels = fasta("bnab.fasta.gz"), table("bnab.labels.tsv")
    loci = Counter(locus for (_, locus), _ in records)
    assert loci == {"IGH": 171, "IGK": 99, "IGL": 64} and len(labels) == 171
    assert {name for (name, locus), _ in records if locus == "IGH"} == {row["receptor_id"] for row in labels}
    with_light = {row["receptor_id"] for row in labels if row["light_chain"] == "yes"}
    assert {name for (name, locus), _ in records if locus != "IGH"} == with_light
    assert all(set(sequence) <= set("ACGTNRYKMSW") for _, sequence in records)


def test_the_readme_names_the_counts():
    text = (DATA / "README.md").read_text(encoding="utf-8")
    for row in ("| `sars2_tcr.labels.tsv` | receptor_id, epitope (the class), subject_id (the donor) | 1,366 |",
                "| NYNYLYRLF | 134 | 17 | 457 |", "| V2 apex | 88 | 6 |"):  # fmt: skip
        assert row in text


def test_demo_data_is_small():
    assert sum(file.stat().st_size for file in DATA.iterdir()) < 2_000_000


def test_the_script_makes_the_same_files(tmp_path):
    wheels = os.environ.get("AIRRFORMER_WHEELS")
    if not wheels:
        pytest.skip("AIRRFORMER_WHEELS names no folder with the wheels tcrdist3 0.3 and abstar 0.8.0")
    script = ROOT / "workflow" / "scripts" / "make_demo_data.py"
    found = [next(Path(wheels).glob(pattern)) for pattern in ("tcrdist3-0.3-*.whl", "abstar-0.8.0-*.whl")]
    subprocess.run(
        [sys.executable, script, *found, DATA / "bnab.labels.tsv", tmp_path], check=True, capture_output=True
    )
    for name in ("sars2_tcr.labels.tsv", "bnab.labels.tsv"):
        assert (tmp_path / name).read_bytes() == (DATA / name).read_bytes()
    for name in ("sars2_tcr.fasta.gz", "bnab.fasta.gz"):  # the text: zlib's bytes may differ between its versions
        assert gzip.decompress((tmp_path / name).read_bytes()) == gzip.decompress((DATA / name).read_bytes())
