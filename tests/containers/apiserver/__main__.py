"""Builds etcd and kube-apiserver: `make apiserver`."""

from __future__ import annotations

import sys

from tests.containers import apiserver

if __name__ == "__main__":
    apiserver.build()
    sys.exit(print(f"etcd and kube-apiserver are in {apiserver.HOME}"))
