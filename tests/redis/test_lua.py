"""What is written into a script is what the script reads."""

import json
from random import Random

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from simhash.index.redis.layout import expression
from simhash.index.redis.opening import open_index
from simhash.relation.tables import design
from tests.pages import brute_force, crowd, relation, summary

NAMES = st.from_regex(r"[a-z][a-z_]{0,5}x", fullmatch=True)
VALUES = st.recursive(
    st.text() | st.integers(-(2**53), 2**53),
    lambda inner: st.lists(inner, min_size=1, max_size=4) | st.dictionaries(NAMES, inner, min_size=1, max_size=4),
    max_leaves=20,
)


@pytest.fixture(scope="module")
def evaluated(redis_server):
    """What a Redis makes of an expression: strings and numbers as they are."""
    show = """
    local function shown(v)
      if type(v) == 'table' and v[1] ~= nil then
        local all = {}
        for i = 1, #v do all[i] = shown(v[i]) end
        return '[' .. table.concat(all, ',') .. ']'
      elseif type(v) == 'table' then
        local all = {}
        for name, each in pairs(v) do all[#all + 1] = '"' .. name .. '":' .. shown(each) end
        return '{' .. table.concat(all, ',') .. '}'
      elseif type(v) == 'number' then return string.format('%.0f', v) end
      return '"' .. string.gsub(v, '.', function(c) return string.format('%02x', string.byte(c)) end) .. '"'
    end
    """
    with redis.Redis.from_url(redis_server.url) as client:
        yield lambda text: json.loads(client.eval(f"{show} return shown({text})", 0))


def in_hex(value):
    if isinstance(value, str):
        return value.encode().hex()
    if isinstance(value, list):
        return [in_hex(each) for each in value]
    return {k: in_hex(v) for k, v in value.items()} if isinstance(value, dict) else value


@given(value=VALUES)
def test_an_expression_is_read_as_it_was_meant(evaluated, value):
    assert evaluated(expression(value)) == in_hex(value)


def test_what_has_no_lua_is_refused():
    with pytest.raises(TypeError, match="no Lua"):
        expression(1.5)


def test_an_index_may_have_any_name(client, name):
    strange = f'{name} "it\'s"\\ ]] %d\n\r\0{{é字'
    rule, pages = relation(design("4")), crowd(60, Random(3))
    index = open_index(client, strange, {}, rule, 40)
    assert [summary(answer.decision) for answer in index.check_and_insert(pages, {})] == brute_force(pages, rule)
    assert index.documents() == len(list(index.scan()))
