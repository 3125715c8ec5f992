"""The name in a certificate is printed as Java prints it (SE-04). The texts on the right are what
`javax.security.auth.x500.X500Principal.getName()` of Java 17 gave for these names."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.x509.name import _ASN1Type as Kind
from cryptography.x509.oid import NameOID as Oid

from kraftlite.security.distinguished_names import MAX_NAME_BYTES, rfc2253

CN = Oid.COMMON_NAME


def name(*relative: list[tuple[x509.ObjectIdentifier, str]] | tuple[x509.ObjectIdentifier, str]) -> x509.Name:
    lists = [item if isinstance(item, list) else [item] for item in relative]
    return x509.Name([x509.RelativeDistinguishedName([x509.NameAttribute(*pair) for pair in pairs]) for pairs in lists])


def typed(text: str, kind: Kind) -> x509.Name:
    return x509.Name([x509.NameAttribute(CN, text, _type=kind)])


PRINTED = [
    (name((CN, "alice")), "CN=alice"),
    (
        name(
            (Oid.COUNTRY_NAME, "DE"),
            (Oid.STATE_OR_PROVINCE_NAME, "B y"),
            (Oid.LOCALITY_NAME, "L"),
            (Oid.ORGANIZATION_NAME, "O, Inc."),
            (Oid.ORGANIZATIONAL_UNIT_NAME, "a+b"),
            (CN, "x=y"),
        ),
        r"CN=x\=y,OU=a\+b,O=O\, Inc.,L=L,ST=B y,C=DE",
    ),
    (name((CN, "#hash")), r"CN=\#hash"),
    (name((CN, "a#hash")), r"CN=a\#hash"),
    (name((CN, " lead trail ")), r"CN=\ lead trail\ "),
    (name((CN, "   ")), r"CN=\ \ \ "),
    (name((CN, 'q"uo\\te<>;')), r"CN=q\"uo\\te\<\>\;"),
    (name((CN, "ümläut 日本")), "CN=ümläut 日本"),
    (name((CN, "a\nb\r\tc")), "CN=a\nb\r\tc"),
    (name((CN, "\rabc\r")), "CN=\\\rabc\\\r"),
    (name((CN, "a  b")), "CN=a  b"),
    (name((Oid.EMAIL_ADDRESS, "a@b.c"), (CN, "e")), "CN=e,1.2.840.113549.1.9.1=#16056140622e63"),
    (
        name((Oid.DOMAIN_COMPONENT, "org"), (Oid.DOMAIN_COMPONENT, "ex"), (Oid.USER_ID, "u1"), (Oid.STREET_ADDRESS, "s 1")),
        "STREET=s 1,UID=u1,DC=ex,DC=org",
    ),
    (name((Oid.TITLE, "Dr"), (Oid.SERIAL_NUMBER, "123")), "2.5.4.5=#1303313233,2.5.4.12=#0c024472"),
    (
        name([(CN, "m"), (Oid.ORGANIZATION_NAME, "o")], [(Oid.USER_ID, "u"), (CN, "c"), (Oid.EMAIL_ADDRESS, "e@f")]),
        "CN=c+UID=u+1.2.840.113549.1.9.1=#1603654066,CN=m+O=o",
    ),
    (typed("bmp", Kind.BMPString), r"CN=\00b\00m\00p"),
    (typed("prt", Kind.PrintableString), "CN=prt"),
    (typed("t61", Kind.T61String), "CN=t61"),
    (typed("uni", Kind.UniversalString), "CN=#1c0c000000750000006e00000069"),
    (typed("vis", Kind.VisibleString), "CN=#1a03766973"),
    (name((CN, "nul\0byte")), r"CN=nul\00byte"),
]


@pytest.mark.parametrize(("given", "printed"), PRINTED, ids=[text for _, text in PRINTED])
def test_se_04_a_name_is_printed_as_java_prints_it(given: x509.Name, printed: str) -> None:
    assert rfc2253(given.public_bytes()) == printed


def test_se_04_what_is_no_name_is_refused() -> None:
    whole = name((CN, "alice"), (Oid.ORGANIZATION_NAME, "o")).public_bytes()
    assert rfc2253(b"\x30\x00") == ""
    for broken in (b"", b"\x31\x00", b"\x30\x81", b"\x30\x02\x05\x00", b"\x30\x88" + bytes(8), bytes(MAX_NAME_BYTES + 1)):
        with pytest.raises(ValueError):
            rfc2253(broken)
    for cut in range(1, len(whole)):
        with pytest.raises(ValueError):
            rfc2253(whole[:cut])
