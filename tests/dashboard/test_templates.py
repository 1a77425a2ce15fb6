"""How templates look names up: as Jinja does, only sooner."""

from __future__ import annotations

import pytest
from jinja2 import Environment, StrictUndefined, UndefinedError

from gtm.dashboard.rendering import environment, prepare
from tests.system.harness import eventually


@pytest.mark.parametrize(
    "template",
    [
        "{{ one.name }}",
        "{{ one.items()|length }}",
        "{{ one['items'] }}",
        "{{ one.get('name') }} {{ one.inner.deep }}",
        "{{ one.none is none }} {{ one.lacks is defined }}",
        "{{ one.values|string|length > 0 }}",
        "{{ (one.inner or {}).deep }}",
        "{% for key, value in one.inner.items() %}{{ key }}{{ value }}{% endfor %}",
    ],
)
def test_names_are_found_as_jinja_finds_them(template: str) -> None:
    """Keys of dictionaries, unless these have a method of that name."""
    values = {"one": {"name": "a", "items": [1], "inner": {"deep": 2}, "none": None}}
    plain = Environment(autoescape=True, undefined=StrictUndefined)
    assert environment().from_string(template).render(values) == plain.from_string(template).render(values)


def test_what_is_not_there_is_an_error_that_names_it() -> None:
    """As everywhere."""
    with pytest.raises(UndefinedError, match="lacks"):
        environment().from_string("{{ one.lacks }}").render(one={})


def test_all_templates_can_be_compiled_ahead() -> None:
    """Then none is when it is shown."""
    prepare.cache_clear()  # tests before may have taken another environment
    prepare()
    made = environment()
    cache = made.cache
    assert cache is not None
    eventually(lambda: len(cache) >= len(made.list_templates()), "its thread has compiled all of them")
