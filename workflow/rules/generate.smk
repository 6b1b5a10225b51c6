# What a decoder writes, beside what it was trained on. A few hundred short rows: the CPU is enough.
rule generate:
    input:
        model=RESULTS.encoder("{encoder}") / "model.safetensors",
        chains=lambda wildcards: [RESULTS.chains(dataset) for dataset in corpus(wildcards)],
    output:
        sequences=RESULTS.generated("{encoder}"),
        numbers=RESULTS.generated("{encoder}").with_suffix(".json"),
    log:
        LOGS / "generate" / "{encoder}.log",
    benchmark:
        BENCHMARKS / "generate" / "{encoder}.tsv"
    wildcard_constraints:
        encoder=one_of(GENERATING),
    conda:
        "../envs/airrformer.yaml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=60,
    params:
        n=1000,
        references=lambda wildcards, input: [f"--reference={path}" for path in input.chains],
        seed=CONFIG.seed,
        version=STAGE_VERSIONS["generate"],
    shell:
        '"$AIRRFORMER_PYTHON" -m airrformer generate --encoder $(dirname {input.model}) --n {params.n}'
        " {params.references:q} --seed {params.seed} --output {output.sequences}"
        " --device cpu --threads {threads} > {log} 2>&1 || {{ cat {log} >&2; exit 1; }}"
