"""Key and trust stores: PEM and PKCS12 in, one line for each thing that is wrong (SE-02)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from kraftlite.security.distinguished_names import MAX_NAME_BYTES
from kraftlite.tls import authority as tls
from kraftlite.tls.contexts import load
from kraftlite.tls.errors import TlsError
from kraftlite.tls.settings import TlsSettings, read_settings
from kraftlite.tls.stores import MAX_STORE_BYTES
from tests.harness.certificates import Authority, Certificate, named

CA = Authority()
NODE = CA.issue("node")
PASSWORD = "geheim"


def settings(**values: str) -> TlsSettings:
    given = {f"ssl.{name.replace('_', '.')}": value for name, value in values.items()}
    problems: list[str] = []
    found = read_settings(given.get, lambda key: key, problems)
    assert not problems
    return found


def in_one_line(pem: str) -> str:
    """As it stands in a properties file."""
    return pem.replace("\n", " ").strip()


def refused(**values: str) -> str:
    with pytest.raises(TlsError) as caught:
        load(settings(**values))
    told = str(caught.value)
    assert PASSWORD not in told and "\n" not in told
    return told


def written(path: Path, content: str | bytes) -> str:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


@pytest.mark.parametrize("password", [None, PASSWORD])
@pytest.mark.parametrize("lines", [True, False])
def test_se_02_pem_in_the_settings(password: str | None, lines: bool) -> None:
    key, chain, trusted = NODE.key_pem(password), NODE.pem + CA.pem, CA.pem
    if not lines:
        key, chain, trusted = in_one_line(key), in_one_line(chain), in_one_line(trusted)
    more = {} if password is None else {"key_password": password}
    kinds = {"keystore_type": "PEM", "truststore_type": "PEM"}
    found = load(settings(**kinds, keystore_key=key, keystore_certificate_chain=chain, truststore_certificates=trusted, **more))
    assert found.leaf == NODE.certificate and found.server is not None
    assert len(found.client.get_ca_certs()) == 1


@pytest.mark.parametrize("password", [None, PASSWORD])
def test_se_02_pem_in_a_file(tmp_path: Path, password: str | None) -> None:
    more = {} if password is None else {"key_password": password}
    path = written(tmp_path / "keys.pem", NODE.pem + CA.pem + NODE.key_pem(password))
    trust = written(tmp_path / "trust.pem", "# ours\n" + CA.pem)
    found = load(settings(keystore_type="PEM", keystore_location=path, truststore_type="PEM", truststore_location=trust, **more))
    assert found.leaf == NODE.certificate and len(found.client.get_ca_certs()) == 1


@pytest.mark.parametrize("kind", ["PKCS12", "JKS", "pkcs12"])
def test_se_02_pkcs12_by_its_own_name_and_by_kafkas_default(tmp_path: Path, kind: str) -> None:
    """Java reads a PKCS12 file where `ssl.keystore.type` is left at JKS."""
    path = written(tmp_path / "keys.p12", NODE.pkcs12(PASSWORD, [CA.certificate]))
    trust = written(tmp_path / "trust.p12", CA.trust_pkcs12(PASSWORD))
    found = load(
        settings(
            keystore_type=kind,
            keystore_location=path,
            keystore_password=PASSWORD,
            truststore_type=kind,
            truststore_location=trust,
            truststore_password=PASSWORD,
        )
    )
    assert found.leaf == NODE.certificate and len(found.client.get_ca_certs()) == 1


def test_se_02_a_jks_store_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    path = written(tmp_path / "server.jks", b"\xfe\xed\xfe\xed\0\0\0\2")
    told = refused(keystore_location=path, keystore_password=PASSWORD)
    assert f"ssl.keystore.location={path} is a JKS store" in told
    assert f"keytool -importkeystore -srckeystore {path} -srcstoretype JKS -destkeystore {tmp_path}/server.p12" in told


@pytest.mark.skipif(shutil.which("keytool") is None, reason="needs keytool")
def test_se_02_the_command_converts_what_keytool_has_made(tmp_path: Path) -> None:
    store = tmp_path / "server.jks"
    options = ["-genkeypair", "-alias", "n", "-keyalg", "EC", "-dname", "CN=node", "-validity", "2", "-storetype", "JKS"]
    subprocess.run(["keytool", *options, "-keystore", store, "-storepass", PASSWORD, "-keypass", PASSWORD], check=True)
    command = refused(keystore_location=str(store)).split("convert it with: ")[1].split(" (then")[0].split()
    subprocess.run([*command, "-srcstorepass", PASSWORD, "-deststorepass", PASSWORD], check=True, capture_output=True)
    made = str(store.with_suffix(".p12"))
    found = load(settings(keystore_type="PKCS12", keystore_location=made, keystore_password=PASSWORD))
    assert found.leaf is not None and found.leaf.subject.rfc4514_string() == "CN=node"


def test_se_02_each_mistake_is_one_line_that_names_the_setting(tmp_path: Path) -> None:
    other = Authority().issue("other")
    pem = {"keystore_type": "PEM"}
    chain, key = NODE.pem, NODE.key_pem()
    p12 = written(tmp_path / "keys.p12", NODE.pkcs12(PASSWORD))
    assert "ssl.keystore.key is given without" in refused(**pem, keystore_key=key)
    assert "ssl.keystore.certificate.chain is given without" in refused(**pem, keystore_certificate_chain=chain)
    both = {"keystore_key": key, "keystore_certificate_chain": chain}
    assert "exclude each other" in refused(**pem, **both, keystore_location="/x")
    assert "the password of a private key is ssl.key.password" in refused(**pem, **both, keystore_password=PASSWORD)
    assert "is for ssl.keystore.type=PEM, and that is JKS" in refused(**both)
    assert "there is no such file" in refused(keystore_location=str(tmp_path / "none"))
    assert "ssl.keystore.password is not set" in refused(keystore_location=p12)
    assert "ssl.keystore.password is wrong" in refused(keystore_location=p12, keystore_password="no")
    assert "is no PEM file" in refused(**pem, keystore_location=p12)
    text = written(tmp_path / "keys.pem", NODE.both(PASSWORD))
    assert "is a PEM file; set ssl.keystore.type=PEM" in refused(keystore_location=text)
    assert "ssl.key.password is not set" in refused(**pem, keystore_location=text)
    assert "ssl.key.password is wrong" in refused(**pem, keystore_location=text, key_password="no")
    assert "has no certificate" in refused(**pem, keystore_key=key, keystore_certificate_chain="nothing")
    assert "has 0 private keys" in refused(**pem, keystore_key="nothing", keystore_certificate_chain=chain)
    assert "key and certificate cannot be used" in refused(**pem, keystore_key=other.key_pem(), keystore_certificate_chain=chain)
    assert "ssl.truststore.certificates is for" in refused(truststore_certificates=CA.pem)
    assert "certificates in PEM have no password" in refused(
        truststore_type="PEM", truststore_certificates=CA.pem, truststore_password=PASSWORD
    )


def test_se_02_what_is_no_file_or_has_no_end_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert "it is no regular file" in refused(keystore_location=str(tmp_path / "fifo"))
    large = written(tmp_path / "large", bytes(MAX_STORE_BYTES + 1))
    assert "is larger than" in refused(truststore_location=large)


def test_se_02_secrets_are_in_no_text_of_the_settings() -> None:
    found = settings(keystore_type="PEM", keystore_key=NODE.key_pem(), keystore_certificate_chain=NODE.pem, key_password=PASSWORD)
    assert PASSWORD not in repr(found) and "PRIVATE" not in repr(found) and "PRIVATE" not in repr(load(found))


def test_se_07_each_mistake_in_a_list_is_one_line_that_names_the_setting(tmp_path: Path) -> None:
    stores = {"keystore_type": "PEM", "keystore_location": written(tmp_path / "keys.pem", NODE.both())}
    for content, words in (
        (None, "there is no such file"),
        (NODE.pem, "has no list of revoked certificates in PEM (BEGIN X509 CRL)"),
        ("-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n", "list 1 cannot be read: "),
        (b"x" * (5 << 20), "is larger than 4194304 bytes"),
    ):
        path = tmp_path / "ca.crl"
        if content is not None:
            written(path, content)
        given = settings(**stores)
        with pytest.raises(TlsError, match=re.escape(words)) as caught:
            load(replace(given, revoked=str(path)))
        assert str(caught.value).startswith(f"kraftlite.ssl.crl.location={path}") and "\n" not in str(caught.value)


def test_se_07_a_list_has_what_it_had_and_nothing_of_others() -> None:
    authority, other = tls.Authority.create("ours"), tls.Authority.create("others")
    first, second = authority.issue("a").certificate, authority.issue("b").certificate
    known = authority.revoke(authority.revoke(None, first), second, first)
    assert [it.serial_number for it in x509.load_pem_x509_crl(known)] == [first.serial_number, second.serial_number]
    with pytest.raises(ValueError, match="the certificate of CN=c is not one of the authority CN=ours"):
        authority.revoke(known, other.issue("c").certificate)


def test_se_05_a_successor_speaks_for_the_same_names() -> None:
    from kraftlite.tls.contexts import check_successor

    def of(certificate: Certificate, **more: str) -> TlsSettings:
        pair = {"keystore_key": certificate.key_pem(), "keystore_certificate_chain": certificate.pem}
        return settings(keystore_type="PEM", **pair, **more)

    old = load(of(CA.issue("node", ["a", "b"])))
    check_successor(old, load(of(CA.issue("node", ["b", "a", "c"]))))
    with pytest.raises(TlsError, match="another distinguished name, CN=other instead of CN=node"):
        check_successor(old, load(of(CA.issue("other", ["a", "b"]))))
    check_successor(old, load(of(CA.issue("other", ["a", "b"]), allow_dn_changes="true")))
    with pytest.raises(TlsError, match="lacks the subject alternative names DNSName:b"):
        check_successor(old, load(of(CA.issue("node", ["a"]))))
    check_successor(old, load(of(CA.issue("node", ["a"]), allow_san_changes="true")))


def test_se_02_what_is_odd_about_a_certificate_is_one_line_too() -> None:
    """A file that changed on disk must not end a node: here the name is longer than any that clients are let in with."""
    odd = CA.issue(named("node", (NameOID.ORGANIZATION_NAME, "o" * MAX_NAME_BYTES)))
    pair = {"keystore_key": odd.key_pem(), "keystore_certificate_chain": odd.pem}
    assert "cannot be used: a distinguished name of" in refused(keystore_type="PEM", **pair)
