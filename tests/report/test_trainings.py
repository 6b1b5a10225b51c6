"""What was trained: the table and the page's part, from what the stages really write."""

from __future__ import annotations

import re
import shutil

import numpy as np
import pandas as pd
import pytest

from airrformer.config import load_config
from airrformer.errors import UserError
from airrformer.generate import generate_file
from airrformer.paths import Results
from airrformer.pretrain import pretrain
from airrformer.receptors.tables import BOUND_COLUMNS, CHAIN_COLUMNS
from airrformer.report import figures, write_leaderboard, write_pretraining
from airrformer.report.page import render
from airrformer.report.trainings import COLUMNS

MODEL = {"layers": 1, "width": 16, "heads": 2, "feed_forward": 32}
TRAIN = {"steps": 6, "batch_tokens": 512, "warmup_steps": 2, "validate_every": 2}


def chains(n: int = 30) -> pd.DataFrame:
    rng, rows = np.random.default_rng(0), []
    for i in range(n):
        cdr3 = "ASS" + "".join(rng.choice(list("GLRTS"), size=6)) + "EQY"
        row = {"receptor_id": f"r{i}", "sequence_id": f"r{i}", "locus": "TRB", "chain": "TRB", "numbered": True}
        row |= {"sequence_aa": f"GVTQTPKFYFC{cdr3}FGPG", "junction_aa": f"C{cdr3}F", "productive": True, "note": None}
        row |= {"v_call": "TRBV6-1*01", "j_call": "TRBJ2-7*01"}
        row |= {"fwr3_start": 0, "fwr3_end": 11, "cdr3_start": 11, "cdr3_end": 11 + len(cdr3)}
        rows.append(row)
    return pd.DataFrame(rows, columns=list(CHAIN_COLUMNS)).astype({column: "Int32" for column in BOUND_COLUMNS})


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trainings")
    plain = {"kind": "pretrain", "corpus": ["toy"], "model": MODEL, "train": TRAIN}
    config = load_config(
        {
            "datasets": {"toy": {"sequences": "toy.fasta", "receptor": "TCR", "chains": ["TRB"]}},
            "encoders": {
                "rotary": plain,
                "alibi": plain | {"model": MODEL | {"positions": "alibi", "norm": "rms"}},
                "writer": plain | {"objective": "causal", "sequence": "junction"},
                "backwards": plain | {"objective": "seq2seq", "corpus": "reversal"},
            },
        }
    )
    results, table = Results(folder / "results"), chains()
    for name, encoder in config.encoders.items():
        corpus = {} if encoder.corpus == "reversal" else {"toy": table}
        pretrain(config, name, corpus, results.encoder(name), device="cpu")
    reference = folder / "reference.fasta"
    reference.write_text("".join(f">{i}\n{j}\n" for i, j in enumerate(table["junction_aa"])), "utf-8")
    generate_file(results.encoder("writer"), 20, results.generated("writer"), [reference], device="cpu")
    return config, results


def test_a_row_for_each_encoder_with_what_its_objective_measures(trained):
    config, results = trained
    write_pretraining(config, results)
    table = pd.read_csv(results.pretraining, sep="\t", keep_default_na=False, na_values=[""]).set_index("encoder")
    assert [table.index.name, *table.columns] == list(COLUMNS)
    assert list(table.index) == list(config.encoders)
    assert list(table["positions"]) == ["rotary", "alibi", "rotary", "rotary"]
    measured = table[["cdr3_perplexity", "next_residue_perplexity", "reversal_greedy_exact"]].notna()
    assert measured.to_numpy().tolist() == [[True, False, False]] * 2 + [[False, True, False], [False, False, True]]
    assert (table["gradient_spike"] >= 1).all() and (table["loss_rise"] >= 0).all()


def test_the_page_compares_encoders_and_shows_what_writers_do(trained):
    page = render(*trained)
    part = page[page.index('<section id="pretraining">') : page.index('<section id="inputs">')]
    assert part.count("<h3>") == 4
    rows = re.findall(r'<tr><th scope="row">(\w+)</th><td>(\w+)</td><td>([\w, ]+)</td><td>(\w+)</td>', part)
    assert rows == [("rotary", "rotary", "layer, pre", "gelu"), ("alibi", "alibi", "rms, pre", "gelu")]
    assert "Of 20 generated sequences" in part and "CASSIRSSYEQYF became" in part
    assert part.count('id="attention-') and 'id="lengths-2-title"' in part and 'id="residues-2-title"' in part
    assert len(re.findall(r'class="bar c[01]"', part)) % 2 == 0


def test_a_run_that_only_writes_backwards_has_a_page_too(trained):
    config, results = trained
    values = config.model_dump(mode="json")
    values |= {"datasets": {}, "encoders": {"backwards": values["encoders"]["backwards"]}}
    alone = load_config(values, check_files=True)
    assert write_leaderboard(alone, results).empty
    page = render(alone, results)
    assert '<section id="pretraining">' in page and "This run taught backwards to write sequences." in page
    assert "Attention is all you need" in page
    assert not any(words in page for words in ('id="leaderboard"', "What to distrust", "Devlin", "Lefranc"))


def test_each_written_token_says_where_the_decoder_looked_most():
    table = pd.DataFrame({"layer": 2, "writes": [0, 1], "written": ["A", "<eos>"], "0_<cls>": [0.1, 0.7],
                          "1_C": [0.9, 0.3]})  # fmt: skip
    drawn = figures.attention_figure("a", "toy", 2, table)
    assert "A from C1 (0.90), □ from ▷0 (0.70)" in drawn
    assert re.findall(r'fill-opacity="([\d.]+)"', drawn) == ["0.10", "0.90", "0.70", "0.30"]


def test_bars_are_shares_of_each_side():
    drawn = figures.shares_figure("s", "toy: lengths", {"9": 1, "10": 3}, {"10": 4}, "residues")
    assert re.findall(r"<title>([\w]+, \w+: [\d.]+)</title>", drawn) == [
        "9, generated: 0.250", "9, real: 0.000", "10, generated: 0.750", "10, real: 1.000",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("rotary/history.tsv", "a\tb\n1\t2\n", "history.tsv: has no column 'step'"),
        ("backwards/cross_attention.tsv", "a\n1\n", "cross_attention.tsv: has no column 'layer'"),
        ("rotary/metrics.json", "3", "metrics.json: not what its stage writes, but 3"),
        ("writer/generated.json", "[]", "generated.json: not what its stage writes"),
    ],
    ids=["history", "attention", "metrics", "generated"],
)
def test_a_file_that_is_something_else_is_one_sentence(trained, tmp_path, file, content, message):
    config, results = trained
    copied = Results(shutil.copytree(results.root, tmp_path / "results"))
    (copied.encoder("") / file).write_text(content, "utf-8")
    with pytest.raises(UserError, match=re.escape(message)):
        render(config, copied)
