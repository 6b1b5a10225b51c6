"""CDR3s against ANARCI's, on real chains.

Needs HMMER, ANARCI in an environment of its own, and the data: the command is looked for as ``ANARCI`` on the PATH, or
named by the environment variable AIRRFORMER_ANARCI; the data lie in the folder that AIRRFORMER_DATA names.

    AIRRFORMER_ANARCI=... AIRRFORMER_DATA=... pytest -m slow -n0 -s tests/receptors/test_anarci_agreement.py
"""

import csv
import gzip
import os
import random
import re
import shutil
import subprocess
from pathlib import Path
from string import ascii_uppercase

import pytest
from Bio.SeqIO.FastaIO import SimpleFastaParser

from airrformer.receptors.regions import number_chains

DATA = os.environ.get("AIRRFORMER_DATA")
ANARCI = os.environ.get("AIRRFORMER_ANARCI") or shutil.which("ANARCI")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DATA, reason="AIRRFORMER_DATA names no folder of real receptors"),
    pytest.mark.skipif(not ANARCI, reason="there is no ANARCI on the PATH, and AIRRFORMER_ANARCI names none"),
    pytest.mark.skipif(not shutil.which("hmmscan"), reason="HMMER (hmmscan), which ANARCI calls, is not installed"),
]

SHORTEST = 70  # residues
J_MOTIF = re.compile("[FW]G.G")
CHAINS = {  # file, column of a table, how many chains at most
    "antibodies of the PDB": ("protein_fasta/anarci_antibody_sequences.fasta", None, 1000),
    "any chains of the PDB": ("protein_fasta/anarci_pdb_sequences.fa.txt.gz", None, 600),
    "human VH": ("antibody_corpus/human_VH.fasta.gz", None, 1000),
    "human VL": ("antibody_corpus/human_VL.fasta.gz", None, 1000),
    "control TRA": ("tcr_controls_paired/controls_TRA.fasta.gz", None, 500),
    "control TRB": ("tcr_controls_paired/controls_TRB.fasta.gz", None, 500),
    "IEDB TRA": ("iedb_paired_tcr/immrep_IEDB.filtered.csv.gz", "TCRa", 500),
    "IEDB TRB": ("iedb_paired_tcr/immrep_IEDB.filtered.csv.gz", "TCRb", 500),
}


def chains(file, column, most):
    """A sample of the distinct chains without stops."""
    path = Path(DATA, file)
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt") as handle:
        found = [row[column] for row in csv.DictReader(handle)] if column else [s for _, s in SimpleFastaParser(handle)]
    distinct = sorted({s.upper() for s in found if len(s) >= SHORTEST and "*" not in s})
    return random.Random(7).sample(distinct, min(most, len(distinct)))


def anarci_cdr3s(sequences, folder):
    """Residues at the IMGT positions 105 to 117 of the first domain of each sequence, if any, by its index."""
    (folder / "chains.fasta").write_text("".join(f">{i}\n{s}\n" for i, s in enumerate(sequences)))
    command = [ANARCI, "-i", "chains.fasta", "-s", "imgt", "-o", "numbered", "--csv", "--ncpu", str(os.cpu_count())]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=900)
    domains = {}
    for table in sorted(folder.glob("numbered_*.csv")):
        with table.open() as handle:
            for row in csv.DictReader(handle):
                cdr3 = "".join(residue for name, residue in row.items() if is_cdr3(name)).replace("-", "")
                i, domain = int(row["Id"]), (int(row["seqstart_index"]), cdr3)
                domains[i] = min(domains.get(i, domain), domain)
    return {i: cdr3 for i, (_, cdr3) in domains.items() if cdr3}


def is_cdr3(column):
    position = column.rstrip(ascii_uppercase)  # 111A is an insertion
    return position.isdigit() and 105 <= int(position) <= 117


@pytest.mark.parametrize("name", CHAINS)
def test_cdr3s_are_those_of_anarci(name, tmp_path, monkeypatch):
    monkeypatch.setenv("AIRRFORMER_CACHE", "off")
    sequences = chains(*CHAINS[name])
    theirs = anarci_cdr3s(sequences, tmp_path)
    numbered = number_chains(sequences, workers=os.cpu_count())
    ours = {i: sequences[i][slice(*one.bounds["cdr3"])] for i, one in enumerate(numbered) if one.bounds}
    differing = [i for i in sorted(ours.keys() & theirs.keys()) if ours[i] != theirs[i]]
    laid = sum(one.by == "germlines" for one in numbered)
    print(
        f"\n{name}: {len(sequences)} chains, {laid} laid on germlines; CDR3s {len(ours)}, of ANARCI {len(theirs)}, "
        f"{1 - len(differing) / len(theirs):.2%} equal"
    )
    for i in differing:
        print(f"  ours {ours[i]}, ANARCI {theirs[i]}: {sequences[i]}")
    assert ours.keys() == theirs.keys()
    assert len(differing) <= 0.005 * len(theirs)
    # Where they differ, ANARCI's domain ends within a CDR3 of 28 residues or more, and J, with its motif, comes later;
    # or there is no J (a frame shift), and where CDR3 ends cannot be told.
    for i in differing:
        assert ours[i].startswith(theirs[i])
        assert len(ours[i]) >= 28 or not J_MOTIF.search(sequences[i], numbered[i].bounds["cdr3"][0])
