"""Ray for tests: one cluster on this machine for all of them."""

import os
import tempfile
from unittest import mock

import pytest

STORE = 80 * 2**20
"""Bytes of a node's object store: about the least that Ray allows."""


@pytest.fixture(scope="session")
def cluster():
    from ray.cluster_utils import Cluster

    quiet = {"enable_worker_prestart": False, "prestart_worker_first_driver": False}
    head = {
        "num_cpus": 2,
        "object_store_memory": STORE,
        "include_dashboard": False,
        "_system_config": quiet,
    }
    # Not pytest's folder: names of sockets must be short.
    with (
        tempfile.TemporaryDirectory(prefix="t", dir="/tmp", ignore_cleanup_errors=True) as folder,
        mock.patch.dict(os.environ, RAY_TMPDIR=folder),
    ):
        cluster = Cluster(True, head_node_args=head)
        try:
            yield cluster
        finally:
            cluster.shutdown()
