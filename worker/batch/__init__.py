"""Batch: new pages against all that exist and against themselves, on Spark, with the verdicts of the stream."""
