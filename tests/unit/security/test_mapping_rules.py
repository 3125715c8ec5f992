"""`ssl.principal.mapping.rules` (SE-04): the examples of KIP-371, and what Kafka's own mapper does with odd ones."""

from __future__ import annotations

import time

import pytest

from kraftlite.security.mapping_rules import MAX_RULES, MappingRules

KIP_371 = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,"
    "DEFAULT"
)


@pytest.mark.parametrize(
    ("rules", "name", "user"),
    [
        ("DEFAULT", "CN=Duke, OU=X", "CN=Duke, OU=X"),
        (KIP_371, "CN=kafka-server1,OU=ServiceUsers,O=Unknown", "kafka-server1"),
        (KIP_371, "CN=kafka1,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "kafka1@sme"),
        (KIP_371, "cn=Kafka1,ou=SME,dc=mycp,dc=com", "kafka1"),
        (KIP_371, "O=nobody", "O=nobody"),
        ("RULE:CN=a/b/", "CN=a", "b"),
        ("RULE:CN=a/b/", "CN=ab", None),
        ("RULE:CN=(.*)/$1/U , RULE:.*/x/", "CN=ab", "AB"),
        ("RULE:a\\/b(.*)/\\/$1/", "a/bc", "/c"),
        ("RULE:CN=(.*)/$12-$2-$x/", "CN=ab", "ab2-$2-$x"),
        ("RULE:CN=(.*)/$0/", "CN=q", "CN=q"),
        ("RULE:CN=(.*)/$1\\$1/", "CN=q", "q$1"),
        ("RULE:.*/x/", "abc", "xx"),
        ("RULE:()a?/[$1]/", "a", "[][]"),
        (",, DEFAULT ,", "q", "q"),
    ],
)
def test_se_04_the_first_rule_that_fits_the_whole_name_decides(rules: str, name: str, user: str | None) -> None:
    assert MappingRules.parse(rules).name_of(name) == user


@pytest.mark.parametrize(
    "text",
    ["DEFAULT foo", "default", "RULE:a/b", "RULE:a/b/X", "RULE:a/b/l", "RULE:(/b/", "RULE:a(?=b)/b/", "RULE:a/b/,x"],
)
def test_se_04_a_rule_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        MappingRules.parse(text)


def test_se_04_rules_and_the_time_that_they_take_are_bounded() -> None:
    with pytest.raises(ValueError, match="more than"):
        MappingRules.parse(",".join(["DEFAULT"] * (MAX_RULES + 1)))
    with pytest.raises(ValueError, match="characters"):
        MappingRules.parse("DEFAULT," * 10_000)
    began = time.process_time()
    assert MappingRules.parse("RULE:(a*)*b/x/").name_of("a" * 10_000) is None
    assert time.process_time() - began < 5, "a name takes linear time"
