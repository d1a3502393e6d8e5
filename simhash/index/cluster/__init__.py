"""The index on a Redis Cluster: `index` is the protocol, read it first; `opening` finds or makes one."""

from simhash.index.cluster.index import ClusterIndex
from simhash.index.cluster.nodes import translated_on_cluster
from simhash.index.cluster.opening import existing_cluster_index, open_cluster_index

__all__ = ["ClusterIndex", "existing_cluster_index", "open_cluster_index", "translated_on_cluster"]
