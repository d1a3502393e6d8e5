"""Text to kept Parquet with other packages: documents of `url` and `text` in, one of each group of near-duplicates out.

Options: package, input, scratch (an empty directory). Answered by how many documents are kept. Each is run as its
documentation has it, with its own defaults but one process.
"""

import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path


def main(package: str, input: str, scratch: str) -> dict[str, int]:  # noqa: A002 - the option's name
    """How many documents a package keeps."""
    answers, sys.stdout = sys.stdout, sys.stderr  # for whatever a package prints
    try:
        return {"kept": PACKAGES[package](Path(input), Path(scratch))}
    finally:
        sys.stdout = answers


def datatrove(path: Path, scratch: Path) -> int:
    """Its four steps: signatures, pairs by bucket, clusters, and the filter that writes what is left."""
    dedup, executor = (import_module(f"datatrove.{name}") for name in ("pipeline.dedup", "executor"))
    reader = import_module("datatrove.pipeline.readers").ParquetReader
    writer = import_module("datatrove.pipeline.writers.parquet").ParquetWriter
    read = reader(str(path.parent), glob_pattern=path.name, id_key="url")
    signatures, buckets, removed, kept = (str(scratch / name) for name in ("signatures", "buckets", "removed", "kept"))
    steps = (
        [read, dedup.MinhashDedupSignature(signatures)],
        [dedup.MinhashDedupBuckets(signatures, buckets)],
        [dedup.MinhashDedupCluster(buckets, removed)],
        [read, dedup.MinhashDedupFilter(removed), writer(kept)],
    )
    for number, step in enumerate(steps):
        tasks = 14 if number == 1 else 1  # of the pairs one for each bucket
        executor.LocalPipelineExecutor(step, tasks=tasks, workers=1, logging_dir=str(scratch / f"log{number}")).run()
    return rows(Path(kept))


def text_dedup(path: Path, scratch: Path) -> int:
    """Its command `text_dedup.minhash`, which writes Arrow; as Parquet after it."""
    module = import_module("text_dedup.minhash")
    out = scratch / "kept"
    arguments = [
        "--path",
        "parquet",
        "--data_files",
        str(path),
        "--split",
        "train",
        "--cache_dir",
        str(scratch / "cache"),
    ]
    module.main.main([*arguments, "--output", str(out), "--column", "text", "--num_proc", "1"], standalone_mode=False)
    import_module("datasets").load_from_disk(str(out)).to_parquet(str(out / "kept.parquet"))
    return rows(out)


def rensa(path: Path, scratch: Path) -> int:
    """A loop over its RMinHash and its index, of word 5-grams; Rust."""
    module = import_module("rensa")
    index = module.RMinHashLSH(threshold=0.8, num_perm=128, num_bands=16)
    made: list[object] = []

    def is_new(words: list[str]) -> bool:
        minhash = module.RMinHash(num_perm=128, seed=42)
        minhash.update([" ".join(words[i : i + 5]) for i in range(max(1, len(words) - 4))])
        if any(made[other].jaccard(minhash) >= 0.8 for other in index.query(minhash)):
            return False
        index.insert(len(made), minhash)
        made.append(minhash)
        return True

    return loop(path, scratch, is_new)


def datasketch(path: Path, scratch: Path) -> int:
    """A loop over its MinHash and MinHashLSH, of word 5-grams."""
    module = import_module("datasketch")
    index = module.MinHashLSH(threshold=0.8, num_perm=128)
    count = iter(range(1 << 62))

    def is_new(words: list[str]) -> bool:
        minhash = module.MinHash(num_perm=128)
        minhash.update_batch([" ".join(words[i : i + 5]).encode() for i in range(max(1, len(words) - 4))])
        if index.query(minhash):
            return False
        index.insert(next(count), minhash, check_duplication=False)
        return True

    return loop(path, scratch, is_new)


def loop(path: Path, scratch: Path, is_new: Callable[[list[str]], bool]) -> int:
    """What is left of a Parquet file, batch by batch."""
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    with parquet.ParquetFile(path) as file, parquet.ParquetWriter(scratch / "kept.parquet", file.schema_arrow) as out:
        for batch in file.iter_batches(1024):
            kept = [at for at, text in enumerate(batch["text"].to_pylist()) if is_new(text.lower().split())]
            out.write_batch(batch.take(arrow.array(kept, arrow.int64())))
    return rows(scratch)


def rows(directory: Path) -> int:
    """In the Parquet files there."""
    parquet = import_module("pyarrow.parquet")
    return sum(parquet.read_metadata(file).num_rows for file in directory.glob("*.parquet"))


PACKAGES = {"datatrove": datatrove, "text-dedup": text_dedup, "rensa": rensa, "datasketch": datasketch}

if __name__ == "__main__":
    print(json.dumps(main(**json.load(sys.stdin))))
