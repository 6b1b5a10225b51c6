"""A number for each stage's output. Raise it when the same input gives another output: Snakemake then runs it again.

The code below ``src/`` is invisible to Snakemake; these numbers stand in for it as tracked parameters of the rules.
"""

STAGE_VERSIONS: dict[str, int] = {
    "parse": 5,
    "weights": 1,
    "pretrain": 6,
    "embed": 1,
    "classify": 6,
    "baselines": 3,
    "compare": 2,
    "explain_map": 1,
    "explain_masked": 1,
    "generate": 1,
    "report": 4,
}
