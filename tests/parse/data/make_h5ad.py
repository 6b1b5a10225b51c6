"""Makes the AnnData files of this folder from invented cells, with the scirpy that is installed.

They need environments of their own, because anndata and airrformer want different versions of pandas:

    pip install scirpy mudata            # 0.13 or later: airr.h5ad, airr.h5mu, encodings.h5ad, no_receptors.h5ad
    pip install scirpy==0.12.2 "anndata<0.8" "pandas<2" "numpy<1.24"   # wide.h5ad, oldest.h5ad, with __categories
    python make_h5ad.py
"""

import importlib.metadata
from pathlib import Path

import anndata
import h5py
import numpy as np
import pandas as pd
import scirpy

HERE = Path(__file__).parent
FIELDS = ("locus", "v_call", "j_call", "c_call", "junction_aa", "junction", "duplicate_count", "consensus_count")
CELLS = {
    "AAAC-1": [
        ("TRA", "TRAV12-2", "TRAJ21", "TRAC", "CAVNFNKFYF", "TGTGCCGTGAACTTCAACAAATTTTACTTT", 4, 210),
        ("TRB", "TRBV19", "TRBJ2-7", "TRBC2", "CASSIRSSYEQYF", "TGTGCCAGTAGTATTCGCTCCTCCTACGAGCAGTACTTC", 11, 840),
    ],
    "CCCA-1": [
        ("TRB", "TRBV7-9", "TRBJ1-2", None, "CASSLGQGYTF", None, 3, 75),
        ("TRA", "TRAV29/DV5", "TRAJ33", "TRAC", "CAASDSNYQLIW", None, 2, 40),
        ("TRA", "TRAV8-3", "TRAJ6", "TRAC", "CAVGAGGSYIPTF", None, 6, 90),
        ("TRA", "TRAV1-2", "TRAJ33", "TRAC", "CAVMDSNYQLIW", None, 1, 8),
    ],
    "GGGT-1": [],
    "TTTG-1": [("TRB", "TRBV20-1", "TRBJ2-4", "TRBC2", "CSADTRGKNIQYF", None, 12, 3436)],
}
OBS = {
    "donor": pd.Categorical(["d1", "d2", "d2", None]),
    "n_counts": [1200.0, 900.0, np.nan, 2100.5],
    "is_cell": [True, True, True, True],
}


def airr_cells():
    """The cells as scirpy's own objects."""
    cells = []
    for name, chains in CELLS.items():
        cell = scirpy.io.AirrCell(name)
        for chain in chains:
            fields = {**cell.empty_chain_dict(), **dict(zip(FIELDS, chain)), "productive": True}
            cell.add_chain(fields)
        cells.append(cell)
    return cells


def with_obs(adata):
    """The cells' donor and two numbers; ``adata`` comes in the order of CELLS."""
    assert list(adata.obs_names) == list(CELLS)
    for name, values in OBS.items():
        adata.obs[name] = values
    return adata


def new():
    """scirpy from 0.13: an awkward array in obsm; and columns in all the encodings of anndata."""
    import mudata

    adata = with_obs(scirpy.io.from_airr_cells(airr_cells()))
    adata.write_h5ad(HERE / "airr.h5ad")
    adata.obsm["airr"] = adata.obsm["airr"][list(FIELDS)]
    mudata.set_options(pull_on_update=False)
    both = mudata.MuData(
        {"gex": anndata.AnnData(np.ones((4, 2), "f4"), obs=pd.DataFrame(index=list(CELLS))), "airr": adata}
    )
    both.obs["batch"] = ["b1", "b1", "b2", "b2"]
    both.write_h5mu(HERE / "loose.h5mu")
    # The same groups in the newer form of HDF5, which takes half the room; before them, as in every MuData file, 512
    # bytes that say so.
    start = (HERE / "loose.h5mu").read_bytes()[:512]
    with (
        h5py.File(HERE / "loose.h5mu") as loose,
        h5py.File(HERE / "airr.h5mu", "w", libver="latest", userblock_size=512) as packed,
    ):
        packed.attrs.update(loose.attrs)
        for name in loose:
            loose.copy(name, packed)
    with open(HERE / "airr.h5mu", "r+b") as file:
        file.write(start)
    (HERE / "loose.h5mu").unlink()

    obs = pd.DataFrame(OBS, index=list(CELLS))
    obs["text"] = np.array(["a", "", "nan", " b "], dtype=object)
    obs["number"] = [1, 2, 3, 4]
    obs["nullable_number"] = pd.array([1, None, 3, 4], dtype="Int64")
    obs["nullable_boolean"] = pd.array([True, None, False, True], dtype="boolean")
    obs["nullable_text"] = pd.array(["a", None, "c", "d"], dtype="string")
    obs["number_category"] = pd.Categorical([7, 7, 8, None])
    obs["IR_VDJ_1_junction_aa"] = pd.array(["CASSIRSSYEQYF", "CASSF", "CASF", "CSADF"], dtype="string")
    obs["IR_VDJ_1_v_call"] = pd.Categorical(["TRBV19", None, None, None])
    anndata.settings.allow_write_nullable_strings = True
    adata = anndata.AnnData(np.ones((4, 2), "f4"), obs=obs)
    adata.write_h5ad(HERE / "encodings.h5ad")
    adata.obs = adata.obs[["donor", "n_counts"]]
    adata.write_h5ad(HERE / "no_receptors.h5ad")


def old():
    """scirpy 0.7 to 0.12, and the names of columns before 0.5; anndata 0.7 keeps categories in __categories."""
    with_obs(scirpy.io.from_airr_cells(airr_cells())).write_h5ad(HERE / "wide.h5ad")
    names = {
        "junction_aa": "cdr3", "junction": "cdr3_nt", "v_call": "v_gene", "j_call": "j_gene", "c_call": "c_gene",
        "duplicate_count": "expr",
    }  # fmt: skip
    obs = pd.DataFrame(OBS, index=list(CELLS))
    obs["has_tcr"] = [str(bool(chains)) for chains in CELLS.values()]
    for locus in ("TRA", "TRB"):
        chains = [[dict(zip(FIELDS, c)) for c in chains if c[0] == locus] for chains in CELLS.values()]
        for number in (1, 2):
            slot = [(found[number - 1 : number] or [{}])[0] for found in chains]
            for field, name in names.items():
                obs[f"{locus}_{number}_{name}"] = [chain.get(field, np.nan) for chain in slot]
            obs[f"{locus}_{number}_cdr3_len"] = [float(len(c["junction_aa"])) if c else np.nan for c in slot]
            obs[f"{locus}_{number}_junction_ins"] = np.nan
    anndata.AnnData(np.ones((4, 2), "f4"), obs=obs).write_h5ad(HERE / "oldest.h5ad")


if __name__ == "__main__":
    new() if tuple(map(int, importlib.metadata.version("scirpy").split(".")[:2])) >= (0, 13) else old()
