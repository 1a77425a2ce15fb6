"""Real clients get through a balancer what they would get of a model server, where there are two unlike ones (`tests/drills/clients/__main__.py`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drills.clients.asked import CLIENTS, NOT_YET, Client, ask_all

pytestmark = [pytest.mark.system, pytest.mark.drill]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_a_client_is_served(client: Client, tmp_path: Path) -> None:
    """Every call of it reaches the server that can answer it, and its errors are the client's own."""
    missing = client.missing()
    if missing:
        pytest.skip(missing)
    found = ask_all(tmp_path, [client])[client.name]
    wrong = {case: result.wrong for case, result in found.items() if result.wrong}
    assert {case: why for case, why in wrong.items() if case not in NOT_YET} == {}
