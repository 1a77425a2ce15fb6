"""gtm: a self-hosted global traffic manager."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("gtm-service")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0+unknown"
