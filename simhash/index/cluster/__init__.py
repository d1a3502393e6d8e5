"""The index on a Redis Cluster: `index` is the protocol, read it first; `opening` finds or makes one."""

from simhash.index.cluster.index import ClusterIndex
from simhash.index.cluster.loading import opened_on_cluster_for_import
from simhash.index.cluster.migration import ClusterMigration
from simhash.index.cluster.nodes import translated_on_cluster
from simhash.index.cluster.opening import existing_cluster_index, open_cluster_index
from simhash.index.cluster.operations import ClusterOperations

__all__ = [
    "ClusterIndex",
    "ClusterMigration",
    "ClusterOperations",
    "existing_cluster_index",
    "open_cluster_index",
    "opened_on_cluster_for_import",
    "translated_on_cluster",
]
