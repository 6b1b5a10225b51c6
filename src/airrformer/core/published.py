"""How the files of published models are read: a table of names for each kind of file, and ``CHECKPOINTS``. No torch.

A published model is a row of ``FAMILIES`` (what it is, core/config.py) and a row of ``CHECKPOINTS`` (how its files are
read, and where they lie).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from airrformer.core import alphabet
from airrformer.core.config import ESM2_NAMES, TAGS

# Their name -> ours. {n} is a layer's number, {p} weight or bias. After our name, "[1]" is the second of three parts
# that are joined, "[2:]" leaves the first two rows out. Two of our names: their rows are cut into equal parts.
# None: dropped on purpose. One name of ours may have several of theirs, if they hold the same numbers.
Names = dict[str, str | tuple[str, ...] | None]

_FAIR_ESM: Names = {
    "embed_tokens.weight": "encoder.embedding.tokens.weight",
    "layers.{n}.self_attn.q_proj.{p}": "encoder.blocks.{n}.attention.qkv.{p}[0]",
    "layers.{n}.self_attn.k_proj.{p}": "encoder.blocks.{n}.attention.qkv.{p}[1]",
    "layers.{n}.self_attn.v_proj.{p}": "encoder.blocks.{n}.attention.qkv.{p}[2]",
    "layers.{n}.self_attn.out_proj.{p}": "encoder.blocks.{n}.attention.output.{p}",
    "layers.{n}.self_attn_layer_norm.{p}": "encoder.blocks.{n}.attention_norm.{p}",
    "layers.{n}.fc1.{p}": "encoder.blocks.{n}.feed_forward.inner.linear.{p}",
    "layers.{n}.fc2.{p}": "encoder.blocks.{n}.feed_forward.output.{p}",
    "layers.{n}.final_layer_norm.{p}": "encoder.blocks.{n}.feed_forward_norm.{p}",
    "emb_layer_norm_after.{p}": "encoder.final_norm.{p}",
    "lm_head.dense.{p}": "head.dense.linear.{p}",
    "lm_head.layer_norm.{p}": "head.norm.{p}",
    "lm_head.weight": "head.output.weight",
    "lm_head.bias": "head.output.bias",
    "contact_head.regression.{p}": "contact_head.regression.{p}",
}
_HUGGING_FACE_ESM: Names = {
    "embeddings.word_embeddings.weight": "encoder.embedding.tokens.weight",
    "embeddings.position_ids": None,
    "encoder.layer.{n}.attention.self.query.{p}": "encoder.blocks.{n}.attention.qkv.{p}[0]",
    "encoder.layer.{n}.attention.self.key.{p}": "encoder.blocks.{n}.attention.qkv.{p}[1]",
    "encoder.layer.{n}.attention.self.value.{p}": "encoder.blocks.{n}.attention.qkv.{p}[2]",
    "encoder.layer.{n}.attention.output.dense.{p}": "encoder.blocks.{n}.attention.output.{p}",
    "encoder.layer.{n}.attention.LayerNorm.{p}": "encoder.blocks.{n}.attention_norm.{p}",
    "encoder.layer.{n}.intermediate.dense.{p}": "encoder.blocks.{n}.feed_forward.inner.linear.{p}",
    "encoder.layer.{n}.output.dense.{p}": "encoder.blocks.{n}.feed_forward.output.{p}",
    "encoder.layer.{n}.LayerNorm.{p}": "encoder.blocks.{n}.feed_forward_norm.{p}",
    "encoder.emb_layer_norm_after.{p}": "encoder.final_norm.{p}",
    "lm_head.dense.{p}": "head.dense.linear.{p}",
    "lm_head.layer_norm.{p}": "head.norm.{p}",
    "lm_head.decoder.weight": "head.output.weight",
    "lm_head.decoder.bias": "head.output.bias",
    "lm_head.bias": "head.output.bias",
    "contact_head.regression.{p}": "contact_head.regression.{p}",
    "pooler.dense.{p}": None,
}
ESM2_FAIR = _FAIR_ESM | {"layers.{n}.self_attn.rot_emb.inv_freq": "encoder.positions.inv_freq"}
ESM2_HUGGING_FACE = _HUGGING_FACE_ESM | {
    "embeddings.position_embeddings.weight": None,  # written by some versions, unused with rotary positions
    "encoder.layer.{n}.attention.self.rotary_embeddings.inv_freq": "encoder.positions.inv_freq",
    "rotary_embeddings.inv_freq": "encoder.positions.inv_freq",
}
# Positions count from the row after that of padding, which is row 1.
ESM1B_FAIR = _FAIR_ESM | {
    "embed_positions.weight": "encoder.positions.table.weight[2:]",
    "emb_layer_norm_before.{p}": "encoder.embedding.norm.{p}",
}
ESM1B_HUGGING_FACE = _HUGGING_FACE_ESM | {
    "embeddings.position_embeddings.weight": "encoder.positions.table.weight[2:]",
    "embeddings.layer_norm.{p}": "encoder.embedding.norm.{p}",
}
ANTIBERTY: Names = {
    "bert.embeddings.position_ids": None,
    "bert.embeddings.word_embeddings.weight": "encoder.embedding.tokens.weight",
    "bert.embeddings.position_embeddings.weight": "encoder.positions.table.weight",
    "bert.embeddings.token_type_embeddings.weight": "encoder.embedding.segments.weight",
    "bert.embeddings.LayerNorm.{p}": "encoder.embedding.norm.{p}",
    "bert.encoder.layer.{n}.attention.self.query.{p}": "encoder.blocks.{n}.attention.qkv.{p}[0]",
    "bert.encoder.layer.{n}.attention.self.key.{p}": "encoder.blocks.{n}.attention.qkv.{p}[1]",
    "bert.encoder.layer.{n}.attention.self.value.{p}": "encoder.blocks.{n}.attention.qkv.{p}[2]",
    "bert.encoder.layer.{n}.attention.output.dense.{p}": "encoder.blocks.{n}.attention.output.{p}",
    "bert.encoder.layer.{n}.attention.output.LayerNorm.{p}": "encoder.blocks.{n}.attention_norm.{p}",
    "bert.encoder.layer.{n}.intermediate.dense.{p}": "encoder.blocks.{n}.feed_forward.inner.linear.{p}",
    "bert.encoder.layer.{n}.output.dense.{p}": "encoder.blocks.{n}.feed_forward.output.{p}",
    "bert.encoder.layer.{n}.output.LayerNorm.{p}": "encoder.blocks.{n}.feed_forward_norm.{p}",
    "bert.pooler.dense.{p}": None,
    "cls.predictions.transform.dense.{p}": "head.dense.linear.{p}",
    "cls.predictions.transform.LayerNorm.{p}": "head.norm.{p}",
    "cls.predictions.decoder.{p}": "head.output.{p}",
    "cls.predictions.bias": "head.output.bias",
    "cls.species.{p}": None,
    "cls.chain.{p}": None,
    "cls.graft.{p}": None,
}

ABLANG1: Names = {
    "AbEmbeddings.AAEmbeddings.weight": "encoder.embedding.tokens.weight",
    "AbEmbeddings.PositionEmbeddings.weight": "encoder.positions.table.weight[1:]",  # row 0 is that of padding
    "AbEmbeddings.LayerNorm.{p}": "encoder.embedding.norm.{p}",
    "EncoderBlocks.Layers.{n}.MultiHeadAttention.Attention.q_proj.{p}": "encoder.blocks.{n}.attention.qkv.{p}[0]",
    "EncoderBlocks.Layers.{n}.MultiHeadAttention.Attention.k_proj.{p}": "encoder.blocks.{n}.attention.qkv.{p}[1]",
    "EncoderBlocks.Layers.{n}.MultiHeadAttention.Attention.v_proj.{p}": "encoder.blocks.{n}.attention.qkv.{p}[2]",
    "EncoderBlocks.Layers.{n}.MultiHeadAttention.Attention.out_proj.{p}": "encoder.blocks.{n}.attention.output.{p}",
    "EncoderBlocks.Layers.{n}.MHALayerNorm.{p}": "encoder.blocks.{n}.attention_norm.{p}",
    "EncoderBlocks.Layers.{n}.IntermediateLayer.expand_dense.{p}": ("encoder.blocks.{n}.feed_forward.inner.linear.{p}"),
    "EncoderBlocks.Layers.{n}.IntermediateLayer.dense_dense.{p}": "encoder.blocks.{n}.feed_forward.output.{p}",
    "EncoderBlocks.Layers.{n}.IntermediateLayer.LayerNorm.{p}": "encoder.blocks.{n}.feed_forward_norm.{p}",
    "AbHead.dense.{p}": "head.dense.linear.{p}",
    "AbHead.layer_norm.{p}": "head.norm.{p}",
    "AbHead.decoder.{p}": "head.output.{p}",
    "AbHead.bias": "head.output.bias",
}
ABLANG2: Names = {
    "aa_embed_layer.weight": "encoder.embedding.tokens.weight",
    "encoder_blocks.{n}.multihead_attention.q_proj.{p}": "encoder.blocks.{n}.attention.qkv.{p}[0]",
    "encoder_blocks.{n}.multihead_attention.k_proj.{p}": "encoder.blocks.{n}.attention.qkv.{p}[1]",
    "encoder_blocks.{n}.multihead_attention.v_proj.{p}": "encoder.blocks.{n}.attention.qkv.{p}[2]",
    "encoder_blocks.{n}.multihead_attention.out_proj.{p}": "encoder.blocks.{n}.attention.output.{p}",
    "encoder_blocks.{n}.multihead_attention.rotary_emb.freqs": "encoder.positions.inv_freq",
    "encoder_blocks.{n}.pre_attn_layer_norm.{p}": "encoder.blocks.{n}.attention_norm.{p}",
    "encoder_blocks.{n}.intermediate_layer.0.{p}": (
        "encoder.blocks.{n}.feed_forward.inner.linear.{p}",
        "encoder.blocks.{n}.feed_forward.inner.gate.{p}",
    ),
    "encoder_blocks.{n}.intermediate_layer.2.{p}": "encoder.blocks.{n}.feed_forward.output.{p}",
    "encoder_blocks.{n}.final_layer_norm.{p}": "encoder.blocks.{n}.feed_forward_norm.{p}",
    "layer_norm_after_encoder_blocks.{p}": "encoder.final_norm.{p}",
    "AbHead.ff.0.{p}": ("head.dense.linear.{p}", "head.dense.gate.{p}"),
    "AbHead.ff.2.{p}": "head.norm.{p}",
    "AbHead.weights": "head.output.weight",
    "AbHead.bias": "head.output.bias",
}
# Files of our own: what an encoder trained here is saved as.
OURS: Names = {
    name: name
    for name in (
        *("encoder.embedding.tokens.weight", "encoder.embedding.segments.weight", "encoder.positions.inv_freq"),
        *("encoder.blocks.{n}.attention_norm.{p}", "encoder.blocks.{n}.attention.qkv.{p}"),
        *("encoder.blocks.{n}.attention.output.{p}", "encoder.blocks.{n}.feed_forward_norm.{p}"),
        *("encoder.blocks.{n}.feed_forward.inner.linear.{p}", "encoder.blocks.{n}.feed_forward.output.{p}"),
        *("encoder.final_norm.{p}", "head.dense.linear.{p}", "head.norm.{p}", "head.output.{p}"),
    )
}


@dataclass(frozen=True)
class Checkpoint:
    """How the files of a published model are read, and where they may lie. ``{name}`` is its name in ``FAMILIES``."""

    kind: str  # of encoder in config.yaml
    source: str  # who publishes it
    licence: str  # of the package that it comes with
    # A table for each kind of file, behind the pattern that is cut off the front of its names; the one that knows most
    # of a file's names is used.
    names: Mapping[str, Names]
    how: str  # to get it; {file}: where a download would lie
    tokens: tuple[str, ...] = alphabet.TOKENS  # their rows, by our names of the tokens
    unknown: str = "<unk>"  # whose row a token of ours takes that they lack
    zeroed: tuple[str, ...] = ()  # tokens whose row is set to 0
    files: tuple[str, ...] = ()  # what a folder may hold, the best first
    packages: tuple[str, ...] = ()  # files inside installed packages: PACKAGE/PATH
    hugging_face: tuple[str, ...] = ()  # patterns within the Hugging Face cache
    url: str | None = None  # of the file, or of an archive that holds it
    contacts_url: str | None = None  # of the contact regression, which fair-esm keeps in a file beside the checkpoint
    settings: Mapping[str, str] = dataclasses.field(default_factory=dict)  # in a hparams.json beside it -> ModelConfig


_FAIR, _HUGGING_FACE = r"(encoder\.)?(sentence_encoder\.)?", r"(esm\.)?"
_FACEBOOK = Checkpoint(
    kind="esm2",
    source="fair-esm",
    licence="MIT",
    names={_FAIR: ESM2_FAIR, _HUGGING_FACE: ESM2_HUGGING_FACE},
    how="put {name}.pt ({url}) at {file}, or name a fair-esm .pt or Hugging Face .safetensors file under `weights:`",
    files=("model.safetensors", "{name}.pt"),
    hugging_face=("models--facebook--{name}/snapshots/*/model.safetensors",),
    url="https://dl.fbaipublicfiles.com/fair-esm/models/{name}.pt",
    contacts_url="https://dl.fbaipublicfiles.com/fair-esm/regression/{name}-contact-regression.pt",
)
_OXFORD1 = Checkpoint(
    kind="ablang",
    source="ablang 0.3.1",
    licence="BSD-3-Clause",
    names={r"(AbRep\.)?": ABLANG1},
    how="unpack {url} and name its folder, or the amodel.pt in it, under `weights:`",
    # Source: ablang2 0.2.1, models/ablang2/vocab.py, whose first 24 are those of AbLang.
    tokens=("<cls>", *"MRHKDESTNQCGPAVIFYWL", "<pad>", "<eos>", "<mask>"),
    unknown="<mask>",  # it has no unknown residue: to AbLang a residue that is not known is one to be guessed
    files=("amodel.pt",),
    settings={"num_attention_heads": "heads", "layer_norm_eps": "eps", "hidden_act": "activation"},
)
CHECKPOINTS: dict[str, Checkpoint] = {
    **dict.fromkeys(ESM2_NAMES, _FACEBOOK),
    # fair-esm sets the <mask> row to 0 when it loads ESM-1b, so <mask> is never a guess.
    "esm1b_t33_650M_UR50S": dataclasses.replace(
        _FACEBOOK, kind="esm1b", names={_FAIR: ESM1B_FAIR, _HUGGING_FACE: ESM1B_HUGGING_FACE}, zeroed=("<mask>",)
    ),
    "antiberty": Checkpoint(
        kind="antiberty",
        source="antiberty 0.1.3",
        licence="MIT",
        names={"": ANTIBERTY},
        how="install them with `pip install antiberty==0.1.3`, or name the file pytorch_model.bin under `weights:`",
        # Source: antiberty 0.1.3, trained_models/vocab.txt
        tokens=("<pad>", "<unk>", "<cls>", "<eos>", "<mask>", *alphabet.AMINO_ACIDS),
        files=("pytorch_model.bin",),
        packages=("antiberty/trained_models/AntiBERTy_md_smooth/pytorch_model.bin",),
        hugging_face=("models--*--AntiBERTy*/snapshots/*/pytorch_model.bin",),
    ),
    **{
        f"ablang1-{chain}": dataclasses.replace(
            _OXFORD1,
            packages=(
                f"ablang/model-weights-{chain}/amodel.pt",
                f"ablang2/model-weights-ablang1-{chain}/amodel.pt",
            ),
            url=f"https://opig.stats.ox.ac.uk/data/downloads/ablang-{chain}.tar.gz",
        )
        for chain in ("heavy", "light")
    },
    "ablang2-paired": Checkpoint(
        kind="ablang2",
        source="ablang2 0.2.1",
        licence="BSD-3-Clause",
        names={r"(AbRep\.)?": ABLANG2},
        how="unpack {url} and name its folder, or the model.pt in it, under `weights:`",
        # Source: ablang2 0.2.1, models/ablang2/vocab.py
        tokens=("<cls>", *"MRHKDESTNQCGPAVIFYWL", "<pad>", "<eos>", "<mask>", "X", "<null_1>"),
        unknown="X",
        files=("model.pt",),
        packages=("ablang2/model-weights-ablang2-paired/model.pt",),
        url="https://zenodo.org/records/10185169/files/ablang2-weights.tar.gz",
        settings={"n_attn_heads": "heads", "layer_norm_eps": "eps", "a_fn": "activation"},
    ),
    "airrformer-mini": Checkpoint(
        kind="mini",
        source="airrformer",
        licence="MIT",
        names={"": OURS},
        how="install airrformer again: they come with it",
        tokens=(*alphabet.TOKENS, *TAGS),
        files=("model.safetensors",),
        packages=("airrformer/weights/airrformer-mini/model.safetensors",),
    ),
}
