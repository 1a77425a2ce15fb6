"""The pages, each a module; its template has the same name. Whoever imports this has declared them all (`gtm.dashboard.visits.page`)."""

from importlib import import_module
from pkgutil import walk_packages

from starlette.routing import Route

from gtm.dashboard.visits import PAGES

for _module in walk_packages(__path__, f"{__name__}."):
    import_module(_module.name)


def routes() -> list[Route]:
    """All pages: of two whose paths fit an address, the one with a word where the other has a name comes first."""
    return sorted(PAGES, key=lambda page: page.path)  # `{` stands behind all letters
