"""Near-duplicate detection of web pages by simhash (Manku, Jain, Das Sarma, WWW 2007).

The library behind `simhash-dedup`: text to fingerprint (`profiles`), permutation tables (`tables`) and the index over
them (`index`). It knows no Kafka, no clock and no environment; `worker` is the pipeline built on it.
"""
