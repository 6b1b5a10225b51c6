"""evaluation: how classifiers are judged."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from airrformer.config.base import Name, Once, Strict


class ClusterSettings(Strict):
    """When two receptors are too alike to stand on both sides of a split (single linkage)."""

    metric: Literal["auto", "cdr3", "tcrdist", "identity"] = Field(
        "auto", description="what is compared; auto: cdr3 for TCRs, identity for antibodies"
    )
    tcr_cdr3_distance: Annotated[int, Field(ge=0)] = Field(
        1, description="cdr3: edits between CDR3s, summed over the chains"
    )
    tcrdist: Annotated[float, Field(ge=0)] = Field(
        24, description="tcrdist: largest TCRdist-like distance over CDR1 to CDR3, summed over the chains"
    )
    antibody_identity: Annotated[float, Field(gt=0, le=1)] = Field(
        0.8, description="identity: share of equal residues of the first chain's V domain"
    )


SplitName = Literal["random", "cluster", "group", "class", "parent", "given"]
# The splits, the most demanding one first; "best" is judged in the first one that a dataset has.
STRICTEST_FIRST = ("given", "group", "cluster", "parent", "class", "random")


class Evaluation(Strict):
    """How the classifiers are judged: cross-validation, split in several ways side by side."""

    splits: Annotated[list[SplitName], Field(min_length=1), Once] = Field(
        ["random", "cluster", "group"],
        description="what must not stand on both sides. random: the same chains; cluster: similar ones; group: one "
        "donor, study, lineage; class: a class is kept from training and its receptors are then the negatives; parent: "
        "stretches of the distance from the parent; given: the folds that a column names",
    )
    group: Name | None = Field(None, description="which group the group split keeps together; default: the first")
    given: Name | None = Field(
        None, description="given: the group whose values are the folds; receptors of the value train are never tested"
    )
    folds: Annotated[int, Field(ge=2)] = Field(3, description="parts of the cross-validation")
    seeds: Annotated[list[int], Field(min_length=1), Once] = Field([1], description="one cross-validation a seed")
    bootstrap: Annotated[int, Field(ge=100)] = Field(1000, description="resamples behind each 95 % interval")
    calibration: Literal["temperature", "isotonic", "none"] = Field(
        "temperature", description="how scores become probabilities, fitted within the training folds"
    )
    top_k: Annotated[int, Field(ge=1)] = Field(10, description="precision among so many best-scored receptors a class")
    min_class: Annotated[int, Field(ge=2)] | None = Field(
        None, description="classes with fewer receptors are left out; default and least: two a fold"
    )
    baselines: bool = Field(True, description="judge the shortcuts and the plain models beside every classifier")
    shuffle_labels: bool = Field(
        False, description="control: give the labels to other receptors at random; every score should then be chance"
    )
    cluster: ClusterSettings = Field(ClusterSettings(), description="what similar means; see below")
