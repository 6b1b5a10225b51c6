"""Generation: a decoder that has learned junctions, the numbers by hand, the files, the mistakes."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from typer.testing import CliRunner

from airrformer.cli import app
from airrformer.core import alphabet
from airrformer.core.alphabet import AMINO_ACIDS
from airrformer.core.config import ModelConfig
from airrformer.core.transformer import Transformer, initialise
from airrformer.core.weights import load_own, save
from airrformer.errors import UserError
from airrformer.generate import (
    are_valid,
    distances,
    generate,
    generate_file,
    is_junction,
    lengths,
    read_reference,
    residues,
    summarise,
    total_variation,
)
from airrformer.receptors.tables import CHAIN_COLUMNS, write_chains
from airrformer.versions import STAGE_VERSIONS

DEMO = Path(__file__).parents[1] / "data" / "sars2_tcr.fasta.gz"
CHAIN = (
    "DGGITQSPKYLFRKEGQNVTLSCEQNLNHDAMYWYRQDPGQGLRLIYYSQIVNDFQKGDIAEGYSVSREKKESFPLTVTSAQKNPTAFYLCASSIRSSYEQYFGPGTRLTVT"
)


def decoder(**changes) -> Transformer:
    settings = dict(layers=1, width=32, heads=4, feed_forward=64, tied=False, head="linear", max_length=60)
    model = Transformer(ModelConfig(form="decoder", **(settings | changes)))
    initialise(model, torch.Generator().manual_seed(0))
    return model.eval()


@pytest.fixture(scope="module")
def junctions() -> list[str]:
    with gzip.open(DEMO, "rt", encoding="utf-8") as file:
        return sorted({line.split("|")[3] for line in file if line.startswith(">")})


@pytest.fixture(scope="module")
def trained(junctions, tmp_path_factory) -> Path:
    """A folder with a decoder after two hundred steps on the demo's junctions: seconds, and enough to see it learn."""
    model, generator = decoder().train(), torch.Generator().manual_seed(1)
    tokens = pad_sequence(
        [torch.tensor(alphabet.encode(junction)) for junction in junctions], True, padding_value=alphabet.PAD
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(200):
        batch = tokens[torch.randint(len(tokens), (64,), generator=generator)]
        logits = model.logits(model(batch[:, :-1]))
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), ignore_index=alphabet.PAD)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    folder = tmp_path_factory.mktemp("trained")
    save(model, folder)
    return folder


@pytest.fixture(scope="module")
def chains(junctions, tmp_path_factory) -> Path:
    """``chains.parquet`` of the demo's junctions, and one chain without."""
    table = pd.DataFrame({"receptor_id": [f"r{i}" for i in range(len(junctions) + 1)]}).reindex(columns=CHAIN_COLUMNS)
    table["junction_aa"], table["sequence_aa"] = [*junctions, None], [*junctions, "DGGITQ"]
    path = tmp_path_factory.mktemp("chains") / "chains.parquet"
    write_chains(table.assign(sequence_id=table["receptor_id"], productive=True, numbered=False), path)
    return path


# ------------------------------------------------------------------------------------------------------ end to end


def test_a_trained_decoder_writes_junctions_and_the_files_say_how_good_they_are(trained, chains, junctions, tmp_path):
    command = ["generate", "--encoder", trained, "--n", 600, "--output", tmp_path / "new.fasta", "--reference", chains]
    done = CliRunner().invoke(app, [str(part) for part in command])
    assert done.exit_code == 0, done.output
    lines = (tmp_path / "new.fasta").read_text("utf-8").splitlines()
    headers, sequences = lines[::2], lines[1::2]
    summary = json.loads((tmp_path / "new.json").read_text("utf-8"))
    assert [header.split()[0] for header in headers] == [f">generated_{i}" for i in range(1, 601)]

    # the shares, counted again from the file
    complete = ["complete=true" in header for header in headers]
    good = [end and is_junction(s) for end, s in zip(complete, sequences)]
    new = [end and s not in set(junctions) for end, s in zip(complete, sequences)]
    assert summary["n"] == 600 and summary["n_reference"] == len(junctions)
    assert summary["shares"] == {
        "complete": sum(complete) / 600,
        "valid": sum(good) / 600,
        "distinct": len(set(sequences)) / 600,
        "new": sum(new) / 600,
        "valid_and_new": sum(a and b for a, b in zip(good, new)) / 600,
    }
    assert summary["settings"] == {
        "sequence": "junction", "max_residues": 40, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "seed": 1,
        "device": summary["settings"]["device"],
    }  # fmt: skip

    # what has been learned
    assert summary["shares"]["valid"] > 0.8 and summary["shares"]["new"] > 0.5
    save(decoder(), tmp_path / "untrained")
    untrained = generate_file(tmp_path / "untrained", 600, tmp_path / "noise.fasta", [chains], device="cpu")
    assert untrained["shares"]["valid"] < 0.05
    for name in ("lengths", "residues"):
        ours, theirs = summary["distances"][name], untrained["distances"][name]
        assert ours["yardstick"] < ours["generated"] < theirs["generated"] / 2
    assert summary["distances"]["yardstick_sequences"] == min(sum(complete), len(junctions) // 2)


def test_log_p_of_a_header_is_the_models(trained, tmp_path):
    generate_file(trained, 20, tmp_path / "a.fasta", temperature=0.8, top_p=0.9, device="cpu")
    model = load_own(trained)
    kept = torch.tensor([alphabet.ID[letter] for letter in alphabet.AMINO_ACIDS] + [alphabet.EOS])
    lines = (tmp_path / "a.fasta").read_text("utf-8").splitlines()
    for header, sequence in zip(lines[::2], lines[1::2], strict=True):
        _, log_p, complete = header.split()
        tokens = torch.tensor([alphabet.encode(sequence)])
        scores = torch.full((1, tokens.shape[1] - 1, 33), -torch.inf)
        scores[..., kept] = model.logits(model(tokens[:, :-1]))[..., kept]
        each = scores.log_softmax(-1).gather(2, tokens[:, 1:, None])[0, :, 0]
        expected = each if complete == "complete=true" else each[:-1]
        assert float(log_p.removeprefix("log_p=")) == pytest.approx(float(expected.sum()), abs=2e-4)


def test_the_seed_decides_and_the_batch_does_not(trained, tmp_path, monkeypatch):
    def text(name: str, **settings) -> str:
        generate_file(trained, 30, tmp_path / name, device="cpu", **settings)
        return (tmp_path / name).read_text("utf-8")

    first = text("a.fasta")
    assert text("b.fasta") == first != text("c.fasta", seed=2)
    monkeypatch.setattr("airrformer.generate._BATCH", 7)
    assert [line for line in text("d.fasta").splitlines() if line[0] != ">"] == [
        line for line in first.splitlines() if line[0] != ">"
    ]


def test_without_a_reference_only_what_needs_none(trained, tmp_path):
    summary = generate_file(trained, 10, tmp_path / "a.fa", device="cpu")
    assert list(summary["shares"]) == ["complete", "valid", "distinct"]
    assert "distances" not in summary and list(summary["lengths"]) == ["generated"]
    assert json.loads((tmp_path / "a.json").read_text("utf-8")) == summary


def test_only_residues_are_written_and_no_more_than_asked_for():
    written = generate(decoder(), 300, 12, seed=1, temperature=5.0)
    letters = {alphabet.TOKENS[token] for one in written for token in one.tokens}
    assert letters == set(alphabet.AMINO_ACIDS)
    assert max(len(one.tokens) for one in written if one.complete) <= 12
    assert {len(one.tokens) for one in written if not one.complete} == {13}  # the last stands where the end should


def test_the_same_from_the_same_number():
    """Other sequences from the same model and seed need another number in versions.STAGE_VERSIONS["generate"]."""
    written = generate(decoder(), 3, 40, seed=1, temperature=0.5)
    texts = ["".join(alphabet.TOKENS[token] for token in one.tokens)[:12] for one in written]
    assert (STAGE_VERSIONS["generate"], texts) == GENERATED


GENERATED = (1, ["LRLRLLYQRLYE", "RLYEMKLKLW", "YDKLWHMSCEMK"])


# ----------------------------------------------------------------------------------------------------- the numbers


@pytest.mark.parametrize(
    ("sequence", "expected"),
    [
        ("CASSIRSSYEQYF", True),
        ("CARDYW", True),
        ("CAAAF", False),  # a CDR3 of three
        ("ASSIRSSYEQYF", False),
        ("CASSIRSSYEQY", False),
        ("CASSIXSSYEQYF", False),
        ("CASSI*SYEQYF", False),
        ("", False),
    ],
)
def test_what_a_junction_is(sequence, expected):
    assert is_junction(sequence) is expected
    assert are_valid([sequence, "CASSLGF"], "junction") == [expected, True]


def test_every_junction_of_the_demo_is_one(junctions):
    assert np.mean([is_junction(junction) for junction in junctions]) > 0.995


def test_a_chain_is_valid_when_numbering_finds_its_junction():
    shuffled = "".join(np.random.default_rng(0).permutation(list(CHAIN)))
    broken = CHAIN.replace("CASSIRSSYEQYF", "CASSIRSSXEQYF")
    assert are_valid([CHAIN, shuffled, broken, "", CHAIN], "chain") == [True, False, False, False, True]


def test_shares_by_hand():
    sequences = ["CASSLGF", "CASSLGF", "CARDYW", "AAAA", "CASSIRF", "CASSKKW"]
    complete = [True, True, True, True, False, True]
    valid = [True, True, True, False, True, True]
    found = summarise(sequences, complete, valid, ["CASSLGF", "CASSPGF", "CASSPGF", "CARRRRF"])
    assert found["shares"] == pytest.approx(
        {"complete": 5 / 6, "valid": 4 / 6, "distinct": 5 / 6, "new": 3 / 6, "valid_and_new": 2 / 6}
    )
    assert found["n_reference"] == 3
    assert found["lengths"] == {"generated": {"4": 1, "6": 1, "7": 3}, "reference": {"7": 3}}
    assert found["distances"]["lengths"] == {"generated": pytest.approx(0.4), "yardstick": 0.0}
    assert found["residues"]["generated"]["G"] == pytest.approx(2 / 31)


def test_frequencies_of_residues_and_lengths():
    found = residues(["CAX", "CB"])
    assert list(found) == [*AMINO_ACIDS, "B", "X"]
    assert found["C"] == 0.4 and found["W"] == 0 and sum(found.values()) == pytest.approx(1)
    assert lengths(["A" * 10, "A" * 9, "C" * 9]) == {"9": 2, "10": 1}


def test_total_variation_against_numpy():
    assert total_variation({"a": 2}, {"a": 7}) == 0 and total_variation({"a": 1}, {"b": 1}) == 1
    rng = np.random.default_rng(0)
    a, b = rng.integers(1, 9, 5), rng.integers(1, 9, 5)
    expected = 0.5 * np.abs(a / a.sum() - b / b.sum()).sum()
    assert total_variation(dict(enumerate(a)), dict(enumerate(b))) == pytest.approx(expected)


def test_a_part_of_the_reference_is_as_far_from_it_as_the_yardstick_says(junctions):
    half = list(np.random.default_rng(5).permutation(junctions))[: len(junctions) // 2]
    rest = sorted(set(junctions) - set(half))
    found = distances(half, rest, seed=1)
    for name in ("lengths", "residues"):
        assert 0.5 < found[name]["generated"] / found[name]["yardstick"] < 2
    assert found == distances(half, rest, seed=1)
    # a few sequences are far from any large set, and the yardstick knows
    few = distances(half[:20], rest, seed=1)
    assert few["yardstick_sequences"] == 20
    assert few["lengths"]["yardstick"] > 2 * found["lengths"]["yardstick"]
    # other residues are seen
    moved = [s[0] + s[1:-1].replace("S", "K") + s[-1] for s in half]
    assert distances(moved, rest, seed=1)["residues"]["generated"] > 5 * found["residues"]["yardstick"]
    assert distances([], rest, seed=1) is None and distances(half, rest[:1], seed=1) is None


def test_nothing_complete_is_no_error():
    found = summarise(["CAS", "CAT"], [False, False], [True, True], ["CASSF", "CARRF"])
    assert found["shares"]["complete"] == found["shares"]["valid"] == found["shares"]["new"] == 0
    assert found["distances"] is None and found["lengths"]["generated"] == {}
    assert set(found["residues"]["generated"].values()) == {0.0}


# -------------------------------------------------------------------------------------------------- files, mistakes


def test_references_of_every_kind(chains, junctions, tmp_path):
    (tmp_path / "a.fasta").write_text(">a\nCASS\nLGF\n>b\ncardyw\n", encoding="utf-8")
    (tmp_path / "a.tsv").write_text("id\tjunction_aa\tsequence_aa\n1\tCASSLGF\tDGG\n2\t\tDGGI\n", encoding="utf-8")
    assert read_reference(tmp_path / "a.fasta", "junction") == ["CASSLGF", "CARDYW"]
    assert read_reference(tmp_path / "a.tsv", "junction") == ["CASSLGF"]
    assert read_reference(tmp_path / "a.tsv", "chain") == ["DGG", "DGGI"]
    assert read_reference(chains, "junction") == junctions
    assert Counter(map(len, read_reference(chains, "chain")))[6] == 1


def test_references_that_cannot_be(tmp_path):
    (tmp_path / "a.tsv").write_text("id\tcdr3\n1\tASSLG\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"a\.tsv: holds no junction; a table needs the column junction_aa"):
        read_reference(tmp_path / "a.tsv", "junction")
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"a\.parquet: not a table of chains"):
        read_reference(tmp_path / "a.parquet", "junction")
    with pytest.raises(UserError, match=r"none\.parquet: there is no such file"):
        read_reference(tmp_path / "none.parquet", "junction")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"form": "encoder"}, "its form is 'encoder' over 33 tokens, which generates no receptors"),
        ({"form": "encoder-decoder"}, "its form is 'encoder-decoder'"),
        ({"form": "decoder", "alphabet_size": 40}, "its form is 'decoder' over 40 tokens"),
    ],
    ids=["encoder", "encoder-decoder", "other-alphabet"],
)
def test_what_cannot_generate(changes, message, tmp_path):
    save(Transformer(ModelConfig(layers=1, width=16, heads=2, feed_forward=32, **changes)), tmp_path / "tiny")
    with pytest.raises(UserError, match=message):
        generate_file(tmp_path / "tiny", 1, tmp_path / "a.fasta")
    assert not (tmp_path / "a.fasta").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"output": "a.txt"}, r"a\.txt: the output is FASTA; name a file that ends in \.fasta or \.fa"),
        ({"output": "{encoder}/config.fasta"}, "the output would be written over the input"),
        ({"encoder": "none"}, "none: no folder of an encoder that was trained here"),
        ({"n": 0}, "n is 0; generate at least one"),
        ({"max_residues": 59}, "at most 59 residues cannot be; give 1 to 58"),
        ({"max_residues": 0}, "at most 0 residues cannot be"),
        ({"seed": 2**64}, "seed is 18446744073709551616; take one from 0"),
        ({"temperature": 0.0}, "temperature 0.0 is no number above 0"),
        ({"top_p": 2.0}, "top_p 2.0"),
        ({"top_k": -1}, "top_k -1"),
        ({"references": ["none.fasta"]}, "none.fasta: cannot read"),
        ({"device": "cuda:99"}, "device 'cuda:99' cannot be used here"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_mistakes_are_one_sentence(trained, tmp_path, monkeypatch, changes, message):
    monkeypatch.chdir(tmp_path)
    arguments = {"encoder": trained, "n": 1, "output": "a.fasta", "device": "cpu"} | changes
    arguments["output"] = arguments["output"].format(encoder=trained)
    before = sorted(trained.iterdir())
    with pytest.raises(UserError, match=message):
        generate_file(**arguments)
    assert sorted(trained.iterdir()) == before and not list(tmp_path.iterdir())


def test_a_window_shorter_than_the_default_is_the_limit(tmp_path):
    save(decoder(max_length=20), tmp_path / "short")
    summary = generate_file(tmp_path / "short", 5, tmp_path / "a.fasta", device="cpu")
    assert summary["settings"]["max_residues"] == 18


@pytest.mark.parametrize(
    ("window", "asked", "message"),
    [(None, 10**9, "at most 1000000000 residues cannot be; give 1 to 10000"), (2, None, "its window of 2 tokens")],
    ids=["endless", "no-room"],
)
def test_lengths_that_no_memory_and_no_window_holds(window, asked, message, tmp_path):
    save(decoder(max_length=window), tmp_path / "tiny")
    with pytest.raises(UserError, match=message):
        generate_file(tmp_path / "tiny", 1, tmp_path / "a.fasta", max_residues=asked, device="cpu")


def test_what_it_writes_is_read_from_its_folder_and_nothing_else_can_be_asked(trained, tmp_path):
    folder = tmp_path / "writer"
    save(load_own(trained), folder)
    (folder / "status.json").write_text('{"status": "ready", "sequence": "junction"}', "utf-8")
    assert generate_file(folder, 5, tmp_path / "a.fasta", device="cpu")["settings"]["sequence"] == "junction"
    with pytest.raises(UserError, match="trained on junctions and writes no chains; leave --sequence out"):
        generate_file(folder, 5, tmp_path / "a.fasta", what="chain", device="cpu")
