"""Receptors that nobody has seen: draws of V(D)J recombination, as a table that `airrformer parse` reads.

    python3 -m venv olga && olga/bin/pip install olga pandas   # OLGA is GPL-3; airrformer never imports it
    olga/bin/python workflow/scripts/background.py TRA TRB 200000 background/tcr.csv.gz
    olga/bin/python workflow/scripts/background.py IGH IGK,IGL 60000 background/antibody.csv.gz

Each row is one receptor: a first and a second chain, drawn apart from each other by OLGA (Sethna et al. 2019,
Bioinformatics 35:2974) from its human models, before any selection. The second chain is of one of the loci named, in
turn. The seed is fixed: the same version of OLGA writes the same file.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

SEED = 7
NAMES = {"IGH": "heavy", "IGK": "light", "IGL": "light"}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("first", help="locus of the first chain: TRA or IGH")
    arguments.add_argument("second", help="of the second, several with commas: TRB or IGK,IGL")
    arguments.add_argument("n", type=int, help="receptors")
    arguments.add_argument("output", type=Path, help="a CSV, plain or compressed")
    given = arguments.parse_args()
    loci = given.second.split(",")
    seconds = [drawn(locus, -(-given.n // len(loci))) for locus in loci]
    second = pd.concat(seconds).sort_index(kind="stable").iloc[: given.n].reset_index(drop=True)
    table = pd.concat([drawn(given.first, given.n), second], axis=1)
    table.insert(0, "receptor_id", [f"{given.output.name.split('.')[0]}{i}" for i in range(len(table))])
    given.output.parent.mkdir(parents=True, exist_ok=True)
    # no time in the file: the same draws are the same bytes
    how = {"method": "gzip", "mtime": 1} if given.output.suffix == ".gz" else "infer"
    table.to_csv(given.output, index=False, compression=how)


def drawn(locus: str, n: int) -> pd.DataFrame:
    """``n`` chains of a locus: V gene, J gene and junction, named as `datasets.*.columns` names them."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "drawn.tsv"
        tool = Path(sys.executable).with_name("olga-generate_sequences")
        if not tool.is_file():
            sys.exit(f"{tool}: OLGA is not installed beside this Python; see the first lines of {__file__}")
        subprocess.run(
            [tool, f"--human{locus}", "-n", str(n), "--seed", str(SEED), "-o", file], check=True, capture_output=True
        )
        table = pd.read_csv(file, sep="\t", header=None, names=["nucleotides", "junction_aa", "v_call", "j_call"])
    return table[["v_call", "j_call", "junction_aa"]].add_prefix(f"{NAMES.get(locus, locus)}.")


if __name__ == "__main__":
    main()
