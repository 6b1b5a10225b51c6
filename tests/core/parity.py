"""The core against published architectures: same weights, same tokens, every layer, outputs and gradients.

``python tests/core/parity.py`` prints the table; all in fp32 on a CPU. A case is one function: it makes a small
reference with random weights, the same model of ours by a table of names, and the pairs of tensors that have to be
equal. test_parity.py holds every error to ``TOLERANCE``.

Rows have unequal lengths; padded positions are hidden as keys and not compared as rows. Forward errors are absolute,
of numbers of size 1 to 5. The gradient is that of a fixed random projection of all compared outputs, by each parameter;
its error is relative to the largest number of that parameter's gradient (of query, key and value: together).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import transformers
from torch import Tensor, nn

sys.path.append(str(Path(__file__).resolve().parents[1]))  # for reference_models, where no pytest put it there
from reference_models import (
    ablang_folder,
    contact_regression_file,
    fair_esm1b_file,
    fair_esm_file,
    randomise,
    reference_ablang1,
    reference_ablang2,
    reference_esm1b,
    reference_esm2,
    small_family,
    token_batch,
)

from airrformer.core import alphabet, published, weights
from airrformer.core.config import FAMILIES, ModelConfig
from airrformer.core.positions import Sight
from airrformer.core.transformer import Attention, Transformer

TOLERANCE = 1e-5

Named = Mapping[str, Tensor]
Outputs = dict[str, list[tuple[Tensor, Tensor]]]  # what -> (theirs, ours), a pair a layer, rows that may be compared


class Pair(NamedTuple):
    """Two models with the same weights; ``rename`` gives their tensors, weights or gradients, our names and shapes."""

    theirs: nn.Module
    ours: nn.Module
    rename: Callable[[Named], Named]
    outputs: Callable[[], Outputs]


class Case(NamedTuple):
    architecture: str
    exercises: str
    build: Callable[[], Pair]


class Errors(NamedTuple):
    compared: dict[str, int]  # what -> how many tensors
    forward: float
    gradient: float


def errors(case: Case) -> Errors:
    """Build the case, run both models once and compare."""
    pair = case.build()
    outputs = pair.outputs()
    both = [two for pairs in outputs.values() for two in pairs]
    forward = largest((ours - theirs).detach() for theirs, ours in both)

    generator = torch.Generator().manual_seed(0)
    directions = [torch.randn(theirs.shape, generator=generator) for theirs, _ in both]
    for model, side in ((pair.theirs, 0), (pair.ours, 1)):
        model.zero_grad()
        sum((direction * two[side]).sum() for direction, two in zip(directions, both)).backward()
    expected = pair.rename({n: p.grad for n, p in pair.theirs.named_parameters() if p.grad is not None})
    found = {name: parameter.grad for name, parameter in pair.ours.named_parameters()}
    without = {name for name in expected.keys() | found.keys() if expected.get(name) is None or found.get(name) is None}
    if without:
        raise AssertionError(f"{case.architecture}: no gradient on one side of {sorted(without)}")
    gradient = largest((found[name] - theirs) / theirs.abs().max() for name, theirs in expected.items())
    return Errors({what: len(pairs) for what, pairs in outputs.items()}, forward, gradient)


def largest(tensors: Iterable[Tensor]) -> float:
    """The largest absolute number; NaN if there is one, which Python's ``max`` might pass over."""
    return float(torch.stack([tensor.abs().max() for tensor in tensors]).max())


# -------------------------------------------------------------------------------------------------- torch's own layers


class TorchStack(nn.Module):
    """Layers of torch between an embedding and, where they are pre-norm, a final norm."""

    def __init__(self, layers: Iterable[nn.Module], tokens: int, width: int, final_norm: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.layers = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(width) if final_norm else nn.Identity()

    def forward(self, tokens: Tensor, *memory: Tensor, **masks) -> list[Tensor]:
        states = [self.embedding(tokens)]
        for layer in self.layers:
            states.append(layer(states[-1], *memory, **masks))
        return [*states[:-1], self.norm(states[-1])]


class TorchModel(nn.Module):
    """An encoder of torch and, where asked for, a decoder that looks at it."""

    def __init__(self, decoder: bool, **settings) -> None:
        super().__init__()
        settings |= dict(d_model=32, nhead=4, dim_feedforward=64, dropout=0.0, batch_first=True)
        layers = [nn.TransformerEncoderLayer(**settings) for _ in range(3)]
        self.encoder = TorchStack(layers, 20, 32, settings["norm_first"])
        self.decoder = None
        if decoder:
            layers = [nn.TransformerDecoderLayer(**settings) for _ in range(2)]
            self.decoder = TorchStack(layers, 20, 32, settings["norm_first"])
        self.head = nn.Linear(32, 20)


_TORCH_LAYER = {
    "self_attn.in_proj_{p}": "attention.qkv.{p}",
    "self_attn.out_proj.{p}": "attention.output.{p}",
    "linear1.{p}": "feed_forward.inner.linear.{p}",
    "linear2.{p}": "feed_forward.output.{p}",
    "norm1.{p}": "attention_norm.{p}",
}
_TORCH_ENCODER_LAYER = _TORCH_LAYER | {"norm2.{p}": "feed_forward_norm.{p}"}
_TORCH_DECODER_LAYER = _TORCH_LAYER | {
    "multihead_attn.in_proj_{p}": "cross_attention.qkv.{p}",
    "multihead_attn.out_proj.{p}": "cross_attention.output.{p}",
    "norm2.{p}": "cross_norm.{p}",
    "norm3.{p}": "feed_forward_norm.{p}",
}
_TORCH = {"head.{p}": "head.output.{p}"}
for _stack, _layer in (("encoder", _TORCH_ENCODER_LAYER), ("decoder", _TORCH_DECODER_LAYER)):
    _TORCH |= {
        f"{_stack}.embedding.{{p}}": f"{_stack}.embedding.tokens.{{p}}",
        f"{_stack}.norm.{{p}}": f"{_stack}.final_norm.{{p}}",
        **{f"{_stack}.layers.{{n}}.{theirs}": f"{_stack}.blocks.{{n}}.{ours}" for theirs, ours in _layer.items()},
    }


def torch_layers(place: str, activation: str, decoder: bool = False) -> Pair:
    theirs = randomise(TorchModel(decoder, norm_first=place == "pre", activation=activation))
    config = ModelConfig(
        form="encoder-decoder" if decoder else "encoder", layers=3, decoder_layers=2 if decoder else None, width=32,
        heads=4, feed_forward=64, activation=activation, alphabet_size=20, positions="none", norm_place=place,
        final_norm=place == "pre", head="linear", tied=False,
    )  # fmt: skip
    ours, rename = mirror(theirs, config, _TORCH)
    source, tokens = random_tokens((9, 4, 7), 20), random_tokens((5, 8, 1), 20)

    def outputs() -> Outputs:
        hidden = source == config.pad
        states = theirs.encoder(source, src_key_padding_mask=hidden)
        if not decoder:
            return compare_states(ours, source, states, theirs.head(states[-1]))
        causal = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], dtype=torch.bool)
        masks = dict(tgt_mask=causal, tgt_key_padding_mask=tokens == config.pad, memory_key_padding_mask=hidden)
        decoded = theirs.decoder(tokens, states[-1], **masks)
        return {
            "source states": pairs(states, ours.encoder(source), ~hidden),
            **compare_states(ours, tokens, decoded, theirs.head(decoded[-1]), source=source),
        }

    return Pair(theirs, ours, rename, outputs)


def multihead_attention(kind: str) -> Pair:
    """Their maps, one a head, against those that ours keeps; and ours without maps, which is computed another way."""
    theirs = randomise(nn.MultiheadAttention(32, 4, batch_first=True))
    ours = Attention(ModelConfig(width=32, heads=4, positions="none")).eval()
    table = {"in_proj_{p}": "qkv.{p}", "out_proj.{p}": "output.{p}"}
    ours.load_state_dict(weights._map_names(theirs.state_dict(), table))
    generator = torch.Generator().manual_seed(1)
    x, source = (torch.randn(3, length, 32, generator=generator) for length in (6, 9))
    memory = source if kind == "cross" else x
    seen = torch.arange(memory.shape[1]) < torch.tensor([[6], [2], [5]])  # (B, S)
    sight = Sight(causal=True) if kind == "causal" else Sight(seen[:, None, None, :])
    rows = seen if kind == "self" else torch.ones(3, 6, dtype=torch.bool)

    def outputs() -> Outputs:
        causal = torch.ones(6, 6, dtype=torch.bool).triu(1)
        masks = dict(attn_mask=causal) if kind == "causal" else dict(key_padding_mask=~seen)
        context, maps = theirs(x, memory, memory, average_attn_weights=False, **masks)
        kept: list[Tensor] = []
        with_maps, without = ours(x, memory, sight, maps=kept), ours(x, memory, sight)
        return {"outputs": pairs([context, context], [with_maps, without], rows), **compare_maps([maps], kept, rows)}

    return Pair(theirs, ours, partial(weights._map_names, table=table), outputs)


# ----------------------------------------------------------------------------------- protein models, from their files

SMALL = dict(layers=3, width=48, heads=4, feed_forward=192)


def esm2_fair() -> Pair:
    name = "esm2_t6_8M_UR50D"
    theirs = randomise(reference_esm2(name).requires_grad_(True))
    return fair_esm(name, theirs, fair_esm_file, published.ESM2_FAIR)


def esm1b_fair() -> Pair:
    name = "esm1b_t33_650M_UR50S"
    with pytest.MonkeyPatch.context() as patch:
        theirs = reference_esm1b(small_family(patch, name, **SMALL)).requires_grad_(True)
        theirs.embed_tokens.weight.data[alphabet.MASK] = 0  # as fair-esm does when it loads the published file
        return fair_esm(name, theirs, fair_esm1b_file, published.ESM1B_FAIR)


def fair_esm(name: str, theirs: nn.Module, write: Callable[[nn.Module, Path], None], table: weights.Names) -> Pair:
    """``write`` makes the file that ours is read from; the contact regression lies beside it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{name}.pt"
        write(theirs, file)
        contact_regression_file(theirs, file)
        ours = weights.load_foreign(name, file).requires_grad_(True)
    tokens, layers = token_batch(), range(ours.config.layers + 1)

    def outputs() -> Outputs:
        found = theirs(tokens, repr_layers=layers, need_head_weights=True)
        states, maps = [found["representations"][layer] for layer in layers], found["attentions"].unbind(1)
        return {
            **compare_states(ours, tokens, states, found["logits"]),
            **compare_maps(maps, ours.attention_maps(tokens), tokens != alphabet.PAD),
            **compare_contacts(theirs.predict_contacts(tokens), ours, tokens),
        }

    return Pair(theirs, ours, partial(weights._map_names, table=table), outputs)


def esm2_hugging_face() -> Pair:
    from safetensors.torch import save_file

    config = FAMILIES["esm2_t6_8M_UR50D"]
    theirs = reference(
        "Esm", "ForMaskedLM", vocab_size=33, hidden_size=config.width, num_hidden_layers=config.layers,
        num_attention_heads=config.heads, intermediate_size=config.feed_forward, position_embedding_type="rotary",
        emb_layer_norm_before=False, token_dropout=True, pad_token_id=alphabet.PAD, mask_token_id=alphabet.MASK,
        layer_norm_eps=config.eps,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        state = {k: v.contiguous().clone() for k, v in theirs.state_dict().items() if k != "lm_head.decoder.weight"}
        save_file(state, Path(folder) / "model.safetensors")
        ours = weights.load_foreign("esm2_t6_8M_UR50D", Path(folder) / "model.safetensors").requires_grad_(True)
    table = {f"{'' if key.startswith('lm_head') else 'esm.'}{key}": v for key, v in published.ESM2_HUGGING_FACE.items()}
    tokens = token_batch()

    def outputs() -> Outputs:
        contacts = theirs.predict_contacts(tokens, (tokens != alphabet.PAD).long())
        return whole(theirs, ours, tokens)() | compare_contacts(contacts, ours, tokens)

    return Pair(theirs, ours, partial(weights._map_names, table=table), outputs)


def compare_contacts(theirs: Tensor, ours: Transformer, tokens: Tensor) -> Outputs:
    """Contacts of residue pairs; theirs (B, L - 2, L - 2) leave out the first and the last token of the longest row."""
    residues = (tokens != alphabet.PAD) & (tokens != alphabet.CLS) & (tokens != alphabet.EOS)
    both = residues[:, 1:-1, None] & residues[:, None, 1:-1]
    return {"contacts": pairs([theirs], [ours.contacts(tokens, residues)[:, 1:-1, 1:-1]], both)}


def ablang1() -> Pair:
    with pytest.MonkeyPatch.context() as patch:
        theirs, hparams = reference_ablang1(small_family(patch, "ablang1-heavy", **SMALL))

        def found(tokens: Tensor) -> tuple[list[Tensor], Tensor]:
            embedded = theirs.AbRep.AbEmbeddings(tokens)
            hidden = (tokens == hparams["pad_token_id"]).float()
            blocks = theirs.AbRep.EncoderBlocks(embedded, attention_mask=hidden, output_hidden_states=True)
            return [embedded, *blocks.all_hidden_states], theirs(tokens)

        return ablang("ablang1-heavy", theirs, hparams, "amodel.pt", found)


def ablang2() -> Pair:
    with pytest.MonkeyPatch.context() as patch:
        theirs, hparams = reference_ablang2(small_family(patch, "ablang2-paired", **SMALL))

        def found(tokens: Tensor) -> tuple[list[Tensor], Tensor]:
            layers = theirs.AbRep(tokens, return_rep_layers=range(SMALL["layers"]))
            return [*layers.many_hidden_states.values(), layers.last_hidden_states], theirs(tokens)

        return ablang("ablang2-paired", theirs, hparams, "model.pt", found)


def ablang(name: str, theirs: nn.Module, hparams: dict, file: str, found: Callable) -> Pair:
    """Their alphabet has other rows, and fewer: rows that they lack are not compared. ``found``: states and logits."""
    for key, parameter in theirs.named_parameters():
        parameter.requires_grad_(not key.endswith("rotary_emb.freqs"))  # which are parameters in name only
    with tempfile.TemporaryDirectory() as folder:
        ours = weights.load_foreign(name, ablang_folder(theirs, hparams, Path(folder), file)).requires_grad_(True)
    their_tokens = weights.CHECKPOINTS[name].tokens
    shared = [alphabet.ID[token] for token in their_tokens]
    sequences = [alphabet.encode(s)[1:-1] for s in ("EVQLVQSGPEVKKPGTSVKVSC", "CAAPYCSSISCNDGFDIW", "DIQMTQSPSSL")]
    sequences[0][5] = alphabet.MASK
    rows = [torch.tensor([*ours.config.before, *row, *ours.config.after]) for row in sequences]
    tokens = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=alphabet.PAD)
    row_of = {alphabet.ID[token]: i for i, token in enumerate(their_tokens)}
    translated = tokens.clone().apply_(row_of.__getitem__)

    def rename(gradients: Named) -> Named:
        mapped = weights._map_state(name, gradients)
        for key in weights._BY_TOKEN:
            theirs_too = torch.zeros(len(mapped[key]), dtype=torch.bool)
            theirs_too[shared] = True
            mapped[key] = mapped[key] * theirs_too.view(-1, *[1] * (mapped[key].ndim - 1))
        return {key: value for key, value in mapped.items() if key in dict(ours.named_parameters())}

    def outputs() -> Outputs:
        states, logits = found(translated)
        everything = compare_states(ours, tokens, states, logits)
        return everything | {"logits": [(expected, mine[:, shared]) for expected, mine in everything["logits"]]}

    return Pair(theirs, ours, rename, outputs)


# ------------------------------------------------------------------------------------------------------- transformers


def bert() -> Pair:
    theirs = reference(
        "Bert", "ForMaskedLM", vocab_size=40, hidden_size=32, num_hidden_layers=3, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=16, pad_token_id=1,
    )  # fmt: skip
    config = ModelConfig(
        layers=3, width=32, heads=4, feed_forward=64, alphabet_size=40, segments=2, embedding_norm=True,
        positions="learned", max_length=16, norm_place="post", final_norm=False, eps=1e-12,
    )  # fmt: skip
    ours, rename = mirror(theirs, config, published.ANTIBERTY)
    tokens = random_tokens((9, 4, 7), 40)
    return Pair(theirs, ours, rename, whole(theirs, ours, tokens, segments=tokens % 2))


def roformer() -> Pair:
    theirs = reference(
        "RoFormer", "ForMaskedLM", vocab_size=40, hidden_size=32, num_hidden_layers=3, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=16, pad_token_id=1,
    )  # fmt: skip
    config = ModelConfig(
        layers=3, width=32, heads=4, feed_forward=64, alphabet_size=40, segments=2, embedding_norm=True,
        positions="rotary", rotary_pairs="interleaved", norm_place="post", final_norm=False, eps=1e-12,
    )  # fmt: skip
    table = {key.replace("bert.", "roformer.", 1): value for key, value in published.ANTIBERTY.items()}
    ours, rename = mirror(theirs, config, table | {"roformer.encoder.embed_positions.weight": None})
    tokens = random_tokens((9, 4, 7), 40)
    return Pair(theirs, ours, rename, whole(theirs, ours, tokens, segments=tokens % 2))


_GPT2 = {
    "transformer.wte.weight": "decoder.embedding.tokens.weight",
    "transformer.wpe.weight": "decoder.positions.table.weight",
    "transformer.h.{n}.ln_1.{p}": "decoder.blocks.{n}.attention_norm.{p}",
    "transformer.h.{n}.attn.c_attn.{p}": "decoder.blocks.{n}.attention.qkv.{p}",
    "transformer.h.{n}.attn.c_proj.{p}": "decoder.blocks.{n}.attention.output.{p}",
    "transformer.h.{n}.ln_2.{p}": "decoder.blocks.{n}.feed_forward_norm.{p}",
    "transformer.h.{n}.mlp.c_fc.{p}": "decoder.blocks.{n}.feed_forward.inner.linear.{p}",
    "transformer.h.{n}.mlp.c_proj.{p}": "decoder.blocks.{n}.feed_forward.output.{p}",
    "transformer.ln_f.{p}": "decoder.final_norm.{p}",
    "lm_head.weight": "head.output.weight",
}


def gpt2() -> Pair:
    theirs = reference(
        "GPT2", "LMHeadModel", vocab_size=40, n_embd=32, n_layer=3, n_head=4, n_positions=16,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    config = ModelConfig(
        form="decoder", layers=3, width=32, heads=4, feed_forward=128, activation="gelu_tanh", alphabet_size=40,
        positions="learned", max_length=16, head="linear", output_bias=False,
    )  # fmt: skip

    def turned(state: Named) -> Named:  # its Conv1D holds (inputs, outputs)
        conv = (".c_attn.weight", ".c_proj.weight", ".c_fc.weight")
        return {key: value.T if key.endswith(conv) else value for key, value in state.items()}

    ours, rename = mirror(theirs, config, _GPT2, turned)
    return Pair(theirs, ours, rename, whole(theirs, ours, random_tokens((9, 4, 7), 40)))


_BLOOM = {
    "transformer.word_embeddings.weight": "decoder.embedding.tokens.weight",
    "transformer.word_embeddings_layernorm.{p}": "decoder.embedding.norm.{p}",
    "transformer.h.{n}.input_layernorm.{p}": "decoder.blocks.{n}.attention_norm.{p}",
    "transformer.h.{n}.self_attention.query_key_value.{p}": "decoder.blocks.{n}.attention.qkv.{p}",
    "transformer.h.{n}.self_attention.dense.{p}": "decoder.blocks.{n}.attention.output.{p}",
    "transformer.h.{n}.post_attention_layernorm.{p}": "decoder.blocks.{n}.feed_forward_norm.{p}",
    "transformer.h.{n}.mlp.dense_h_to_4h.{p}": "decoder.blocks.{n}.feed_forward.inner.linear.{p}",
    "transformer.h.{n}.mlp.dense_4h_to_h.{p}": "decoder.blocks.{n}.feed_forward.output.{p}",
    "transformer.ln_f.{p}": "decoder.final_norm.{p}",
    "lm_head.weight": "head.output.weight",
}


def bloom() -> Pair:
    """Its scores gain slope * key, ours slope * (key - query): the same after the softmax."""
    theirs = reference(
        "Bloom", "ForCausalLM", vocab_size=40, hidden_size=32, n_layer=3, n_head=4, hidden_dropout=0.0,
        attention_dropout=0.0, pad_token_id=1,
    )  # fmt: skip
    config = ModelConfig(
        form="decoder", layers=3, width=32, heads=4, feed_forward=128, activation="gelu_tanh", alphabet_size=40,
        embedding_norm=True, positions="alibi", head="linear", output_bias=False,
    )  # fmt: skip

    def sorted_rows(state: Named) -> Named:  # query, key and value of each head in turn -> all queries, keys, values
        return {
            key: value.unflatten(0, (4, 3, 8)).transpose(0, 1).flatten(0, 2) if ".query_key_value." in key else value
            for key, value in state.items()
        }

    ours, rename = mirror(theirs, config, _BLOOM, sorted_rows)
    return Pair(theirs, ours, rename, whole(theirs, ours, random_tokens((9, 4, 7), 40)))


_LLAMA = {
    "model.embed_tokens.weight": "decoder.embedding.tokens.weight",
    "model.layers.{n}.self_attn.q_proj.{p}": "decoder.blocks.{n}.attention.qkv.{p}[0]",
    "model.layers.{n}.self_attn.k_proj.{p}": "decoder.blocks.{n}.attention.qkv.{p}[1]",
    "model.layers.{n}.self_attn.v_proj.{p}": "decoder.blocks.{n}.attention.qkv.{p}[2]",
    "model.layers.{n}.self_attn.o_proj.{p}": "decoder.blocks.{n}.attention.output.{p}",
    "model.layers.{n}.mlp.gate_proj.{p}": "decoder.blocks.{n}.feed_forward.inner.gate.{p}",
    "model.layers.{n}.mlp.up_proj.{p}": "decoder.blocks.{n}.feed_forward.inner.linear.{p}",
    "model.layers.{n}.mlp.down_proj.{p}": "decoder.blocks.{n}.feed_forward.output.{p}",
    "model.layers.{n}.input_layernorm.{p}": "decoder.blocks.{n}.attention_norm.{p}",
    "model.layers.{n}.post_attention_layernorm.{p}": "decoder.blocks.{n}.feed_forward_norm.{p}",
    "model.norm.{p}": "decoder.final_norm.{p}",
    "lm_head.weight": "head.output.weight",
}


def llama(scaling: dict | None = None, max_length: int = 64, **choices) -> Pair:
    """``scaling`` and ``max_length`` are settings of theirs, ``choices`` of ours."""
    theirs = reference(
        "Llama", "ForCausalLM", vocab_size=40, hidden_size=24, num_hidden_layers=3, num_attention_heads=2, head_dim=16,
        intermediate_size=64, pad_token_id=1, rms_norm_eps=1e-6, max_position_embeddings=max_length,
        rope_theta=10_000.0, rope_scaling=scaling,
    )  # fmt: skip
    config = ModelConfig(
        form="decoder", layers=3, width=24, heads=2, head_width=16, feed_forward=64, activation="swiglu", bias=False,
        alphabet_size=40, norm="rms", eps=1e-6, head="linear", output_bias=False, tied=False, **choices,
    )  # fmt: skip
    ours, rename = mirror(theirs, config, _LLAMA)
    return Pair(theirs, ours, rename, whole(theirs, ours, random_tokens((32, 9, 20), 40)))


_BART_BLOCK = {
    "self_attn.q_proj.{p}": "attention.qkv.{p}[0]",
    "self_attn.k_proj.{p}": "attention.qkv.{p}[1]",
    "self_attn.v_proj.{p}": "attention.qkv.{p}[2]",
    "self_attn.out_proj.{p}": "attention.output.{p}",
    "self_attn_layer_norm.{p}": "attention_norm.{p}",
    "encoder_attn.q_proj.{p}": "cross_attention.qkv.{p}[0]",
    "encoder_attn.k_proj.{p}": "cross_attention.qkv.{p}[1]",
    "encoder_attn.v_proj.{p}": "cross_attention.qkv.{p}[2]",
    "encoder_attn.out_proj.{p}": "cross_attention.output.{p}",
    "encoder_attn_layer_norm.{p}": "cross_norm.{p}",
    "fc1.{p}": "feed_forward.inner.linear.{p}",
    "fc2.{p}": "feed_forward.output.{p}",
    "final_layer_norm.{p}": "feed_forward_norm.{p}",
}
_BART = {"model.shared.weight": "encoder.embedding.tokens.weight", "final_logits_bias": None}  # the latter all zero
for _stack in ("encoder", "decoder"):
    _BART |= {
        f"model.{_stack}.embed_tokens.weight": f"{_stack}.embedding.tokens.weight",
        f"model.{_stack}.embed_positions.weight": f"{_stack}.positions.table.weight",
        f"model.{_stack}.layernorm_embedding.{{p}}": f"{_stack}.embedding.norm.{{p}}",
        f"model.{_stack}.layer_norm.{{p}}": f"{_stack}.final_norm.{{p}}",
        **{f"model.{_stack}.layers.{{n}}.{k}": f"{_stack}.blocks.{{n}}.{v}" for k, v in _BART_BLOCK.items()},
        "lm_head.weight": "head.output.weight",
    }


def bart(family: str = "Bart") -> Pair:
    """BART, or mBART, which is its pre-norm kind."""
    pre = family == "MBart"
    theirs = reference(
        family, "ForConditionalGeneration", vocab_size=40, d_model=32, encoder_layers=3, decoder_layers=2,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64,
        max_position_embeddings=16, pad_token_id=1, scale_embedding=True, activation_dropout=0.0, dropout=0.0,
        attention_dropout=0.0,
    )  # fmt: skip
    config = ModelConfig(
        form="encoder-decoder", layers=3, decoder_layers=2, width=32, heads=4, feed_forward=64, alphabet_size=40,
        embedding_scale=True, embedding_norm=True, positions="learned", max_length=16, head="linear",
        norm_place="pre" if pre else "post", final_norm=pre, output_bias=False,
    )  # fmt: skip

    def cut(state: Named) -> Named:  # the first two rows of its position tables are never read
        return {key: value[2:] if key.endswith("embed_positions.weight") else value for key, value in state.items()}

    ours, rename = mirror(theirs, config, _BART, cut)
    ours.decoder.embedding.tokens.weight = ours.encoder.embedding.tokens.weight  # one table for all three
    ours.tie()
    source, tokens = random_tokens((9, 4, 7), 40), random_tokens((5, 8, 1), 40)

    def outputs() -> Outputs:
        source_seen, seen = source != config.pad, tokens != config.pad
        found = theirs(
            source, attention_mask=source_seen.long(), decoder_input_ids=tokens, decoder_attention_mask=seen.long(),
            output_hidden_states=True, output_attentions=True,
        )  # fmt: skip
        return {
            "source states": pairs(found.encoder_hidden_states, ours.encoder(source), source_seen),
            **compare_states(ours, tokens, found.decoder_hidden_states, found.logits, source=source),
            **compare_maps(found.decoder_attentions, ours.attention_maps(tokens, source=source), seen),
            **compare_maps(found.cross_attentions, ours.cross_attention_maps(tokens, source), seen, "cross maps"),
        }

    return Pair(theirs, ours, rename, outputs)


# ----------------------------------------------------------------------------------------------------- the common parts


def reference(family: str, task: str, **settings) -> nn.Module:
    """A model of transformers with random weights and without dropout; eager, the attention that also gives maps."""
    quiet = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)
    config = getattr(transformers, f"{family}Config")(**quiet, **settings, attn_implementation="eager")
    return randomise(getattr(transformers, f"{family}{task}")(config).eval())


def mirror(
    theirs: nn.Module, config: ModelConfig, table: dict[str, str | None], reshape: Callable[[Named], Named] = dict
) -> tuple[Transformer, Callable[[Named], Named]]:
    """Our model with their weights, and what renames their tensors: ``reshape``, then the table of names."""

    def rename(state: Named) -> Named:
        return weights._map_names(reshape(state), table)

    ours = Transformer(config).eval()
    missing, unexpected = ours.load_state_dict(rename(theirs.state_dict()), strict=False)
    # Rotary frequencies are in no file of theirs: both sides have their own formula.
    if unexpected or not all(name.endswith(".inv_freq") for name in missing):
        raise AssertionError(f"no counterpart for {unexpected}, nothing for {missing}")
    ours.tie()
    return ours, rename


def random_tokens(lengths: tuple[int, ...], alphabet_size: int, pad: int = 1) -> Tensor:
    """(B, L) ids from 2 up, padded on the right."""
    generator = torch.Generator().manual_seed(2)
    rows = [torch.randint(2, alphabet_size, (length,), generator=generator) for length in lengths]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=pad)


def whole(
    theirs: nn.Module, ours: Transformer, tokens: Tensor, segments: Tensor | None = None
) -> Callable[[], Outputs]:
    """What a model of transformers with one stack and ours both give; no maps beside ``segments``."""

    def outputs() -> Outputs:
        seen = tokens != ours.config.pad
        extra = {} if segments is None else dict(token_type_ids=segments)
        found = theirs(
            tokens, attention_mask=seen.long(), output_hidden_states=True, output_attentions=segments is None, **extra
        )
        result = compare_states(ours, tokens, found.hidden_states, found.logits, segments=segments)
        if segments is None:
            result |= compare_maps(found.attentions, ours.attention_maps(tokens), seen)
        return result

    return outputs


def compare_states(ours: Transformer, tokens: Tensor, states: list[Tensor], logits: Tensor, **inputs) -> Outputs:
    """All hidden states, layer 0 to the last, and the logits."""
    seen = tokens != ours.config.pad
    found = ours.hidden_states(tokens, **inputs)
    return {"states": pairs(states, found, seen), "logits": pairs([logits], [ours.logits(found[-1])], seen)}


def compare_maps(theirs: Iterable[Tensor], ours: Iterable[Tensor], seen: Tensor, what: str = "maps") -> Outputs:
    """Attention weights (B, H, L, S) at the queries ``seen`` (B, L)."""
    return {what: pairs(*([one.transpose(1, 2) for one in maps] for maps in (theirs, ours)), seen)}


def pairs(theirs: Iterable[Tensor], ours: Iterable[Tensor], seen: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Tensors (B, L, ...) of both, where ``seen`` (B, L)."""
    return [(expected[seen], found[seen]) for expected, found in zip(theirs, ours, strict=True)]


CASES = [
    *(
        Case(
            f"torch Transformer{stack}Layer, {place}-norm, {activation}",
            exercises,
            partial(torch_layers, place, activation, decoder=stack == "Decoder"),
        )
        for stack, exercises in (
            ("Encoder", "padding"),
            ("Decoder", "encoder-decoder, causal, padding of target and memory"),
        )
        for place in ("pre", "post")
        for activation in ("relu", "gelu")
    ),
    Case("torch MultiheadAttention, self", "padding, maps", partial(multihead_attention, "self")),
    Case("torch MultiheadAttention, causal", "causal mask, maps", partial(multihead_attention, "causal")),
    Case("torch MultiheadAttention, cross", "padding of memory, maps", partial(multihead_attention, "cross")),
    Case("ESM-2 8M (fair-esm)", "its file format, rotary, token dropout with a mask, contact head", esm2_fair),
    Case("ESM-2 8M (transformers)", "its file format, the same", esm2_hugging_face),
    Case("ESM-1b (fair-esm)", "its file format, learned positions, norm over the embedding, contact head", esm1b_fair),
    Case("AbLang (ablang2)", "its file format, alphabet of its own, post-norm, learned positions", ablang1),
    Case("AbLang2 (ablang2)", "its file format, alphabet of its own, SwiGLU, interleaved rotary, own scale", ablang2),
    Case("BERT (transformers)", "post-norm, learned positions, two segments, output transform", bert),
    Case("RoFormer (transformers)", "post-norm, interleaved rotary, two segments", roformer),
    Case("GPT-2 (transformers)", "decoder, pre-norm, learned positions, tanh GELU, tied", gpt2),
    Case("BLOOM (transformers)", "decoder, pre-norm, ALiBi, norm over the embedding, tied", bloom),
    Case("Llama (transformers)", "decoder, RMSNorm, SwiGLU, rotary, no biases, own head width", llama),
    Case(
        "Llama, rope scaling linear",
        "position interpolation, 4 times",
        partial(llama, {"rope_type": "linear", "factor": 4.0}, rotary_scaling="interpolation", rotary_factor=4.0),
    ),
    Case(
        "Llama, rope scaling dynamic",  # theirs grows with the input: 32 tokens of 16 make 2 * 32 / 16 - (2 - 1) = 3
        "NTK, 3 times, at one length",
        partial(llama, {"rope_type": "dynamic", "factor": 2.0}, 16, rotary_scaling="ntk", rotary_factor=3.0),
    ),
    Case(
        "Llama, rope scaling yarn",
        "YaRN, 4 times",
        partial(
            llama,
            {"rope_type": "yarn", "factor": 4.0},
            512,
            rotary_scaling="yarn",
            rotary_factor=4.0,
            rotary_length=512,
        ),
    ),
    Case("BART (transformers)", "encoder-decoder, cross-attention, post-norm, one table for all three", bart),
    Case("mBART (transformers)", "encoder-decoder, cross-attention, pre-norm, final norms", partial(bart, "MBart")),
]


def main() -> None:
    """Print the table as Markdown; leave with 1 if an error is above the tolerance."""
    print("| architecture | what it exercises | compared | max error forward | max error gradient |")
    print("| --- | --- | --- | --- | --- |")
    found_all = []
    for case in CASES:
        found = errors(case)
        found_all += [found.forward, found.gradient]
        compared = ", ".join(f"{n} {what}" if n > 1 else what for what, n in found.compared.items())
        row = f"| {case.architecture} | {case.exercises} | {compared} | {found.forward:.1e} | {found.gradient:.1e} |"
        print(row, flush=True)
    worst = largest(torch.tensor(found_all))
    print("\nT5, the other well-known encoder-decoder, is not here: its relative bias is none of our position schemes.")
    print(f"Largest error {worst:.1e}, allowed {TOLERANCE:.0e}; torch {torch.__version__}, fp32, CPU.")
    sys.exit(not worst <= TOLERANCE)


if __name__ == "__main__":
    main()
