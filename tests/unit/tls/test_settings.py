"""`ssl.*` settings: versions, cipher suites and names, each mistake one line (SE-02, SE-03)."""

from __future__ import annotations

import ssl

import pytest

from kraftlite.tls.ciphers import TLS_1_3_SUITES, openssl_name
from kraftlite.tls.contexts import load, suite_allowed
from kraftlite.tls.errors import TlsError
from kraftlite.tls.pem import in_lines
from kraftlite.tls.settings import ClientAuth, read_settings
from tests.harness.certificates import Authority

OLD = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        (OLD, "ECDHE-ECDSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_128_GCM_SHA256", "DHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", "ECDHE-RSA-AES128-SHA256"),
        ("TLS_RSA_WITH_AES_256_CBC_SHA", "AES256-SHA"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("TLS_RSA_WITH_RC4_128_MD5", None),
        ("TLS_ECDHE_RSA_WITH_AES_512_GCM_SHA384", None),
        ("ECDHE-RSA-AES256-GCM-SHA384", None),
    ],
)
def test_se_02_suites_have_the_names_of_java(java: str, openssl: str | None) -> None:
    assert openssl_name(java) == openssl
    if openssl is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_ciphers(java.replace(java, openssl))
        assert openssl in [cipher["name"] for cipher in context.get_ciphers()]


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("ssl.enabled.protocols", "TLSv1.1,TLSv1.2", "TLSv1.1 is not supported; allowed is TLSv1.2 and TLSv1.3"),
        ("ssl.cipher.suites", "TLS_NULL", "TLS_NULL is not known here"),
        ("ssl.cipher.suites", TLS_1_3_SUITES[2], f"{TLS_1_3_SUITES[0]} must be among them"),
        ("ssl.client.auth", "maybe", "allowed is none or requested or required"),
        ("ssl.keystore.type", "BKS", "allowed is PEM or PKCS12 or JKS"),
        ("ssl.endpoint.identification.algorithm", "ldaps", "allowed is https, or nothing"),
        ("ssl.principal.mapping.rules", "RULE:(/x/", "pattern '('"),
    ],
)
def test_se_01_a_bad_value_is_one_line_that_names_its_key(key: str, value: str, words: str) -> None:
    problems: list[str] = []
    read_settings({key: value}.get, lambda name: f"listener.name.x.{name}", problems)
    assert len(problems) == 1 and problems[0].startswith(f"listener.name.x.{key}") and words in problems[0]


def test_se_02_versions_follow_from_protocols_and_suites() -> None:
    both = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)

    def versions(**values: str) -> tuple[ssl.TLSVersion, ssl.TLSVersion]:
        given = {f"ssl.{name.replace('_', '.')}": value for name, value in values.items()}
        problems: list[str] = []
        found = load(read_settings(given.get, lambda key: key, problems)).client
        assert not problems
        return found.minimum_version, found.maximum_version

    assert versions() == both
    assert versions(enabled_protocols="TLSv1.3") == (both[1], both[1])
    assert versions(enabled_protocols="TLSv1.2") == (both[0], both[0])
    assert versions(cipher_suites=OLD) == (both[0], both[0]), "without a suite of TLS 1.3 it is not spoken, as in Java"
    assert versions(cipher_suites=TLS_1_3_SUITES[0]) == (both[1], both[1])
    assert versions(cipher_suites=f"{OLD},{TLS_1_3_SUITES[0]}") == both
    with pytest.raises(TlsError, match="no suite for any version"):
        versions(cipher_suites=OLD, enabled_protocols="TLSv1.3")


def test_se_02_of_tls_1_3_only_the_suites_that_are_named_may_be_used() -> None:
    problems: list[str] = []
    named = {"ssl.cipher.suites": f"{TLS_1_3_SUITES[0]},{TLS_1_3_SUITES[2]}"}
    settings = read_settings(named.get, lambda key: key, problems)
    assert [suite_allowed(settings, name) for name in TLS_1_3_SUITES] == [True, False, True]
    assert suite_allowed(read_settings({}.get, lambda key: key, problems), TLS_1_3_SUITES[1])


def test_se_03_defaults_are_kafkas() -> None:
    problems: list[str] = []
    found = read_settings({}.get, lambda key: key, problems)
    assert found.client_auth is ClientAuth.NONE and found.check_host and not problems
    assert not read_settings({"ssl.endpoint.identification.algorithm": ""}.get, lambda key: key, problems).check_host


def test_se_02_pem_in_one_line_and_headers_of_old_keys() -> None:
    pem = Authority().pem
    assert in_lines(pem.replace("\n", "")).strip() == pem.strip() == in_lines(pem).strip()
    old = (
        "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nAAAA\n-----END EC PRIVATE KEY-----\n"
    )
    assert in_lines(old).strip() == old.strip()
