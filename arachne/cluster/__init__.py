"""Many machines, one repair: the inputs are shared out shard by shard, the result is the same bytes.

    engine ── operations ──> ClusterBackend      backend.py    splits inputs into shards, joins answers in their order
                                  │
                                Team             team.py       who gets which shard; lost and late workers
                                  │  dask
                               answer            worker.py     opens the model, reads the shard, answers

`starting.py` starts a local cluster or joins one. dask is imported when a cluster is asked for, never before.
"""
