"""The one list of fields that do not change what is learned."""

from isosphere.recipes import options, schema
from isosphere.recipes.fields import FREE


def test_every_free_field_is_a_field():
    assert set(FREE) <= options.every_field(schema.Recipe).keys() and len(set(FREE)) == len(FREE)
